// The page's sections, built of its data: words, tables and places for pictures. All texts become text nodes; what is set off has
// marks (marked.hpp).
const markNames = {b: 'strong', s: 'small', o: 'span', c: 'code', n: 'em', t: 'span'};
function rich(text) {
  const open = [{nodes: []}];
  for (const piece of text.match(/\x02.|\x1d[^\x03]*|\x03|[^\x02\x03\x1d]+/gs) ?? []) {
    const top = open.at(-1);
    if (piece[0] === '\x02') open.push({kind: piece[1], nodes: []});
    else if (piece[0] === '\x1d') top.tip = piece.slice(1);
    else if (piece[0] === '\x03') {
      const node = element(markNames[top.kind], {className: top.kind === 'o' ? 'soft' : ''}, top.nodes);
      open.pop();
      open.at(-1).nodes.push(top.tip ? tipped(node, top.tip) : node);
    } else top.nodes.push(...piece.split('\n').flatMap((line, i) => i > 0 ? [element('br'), line] : [line]));
  }
  return open[0].nodes;
}
function tipped(node, tip) {
  node.classList.add('tip');
  node.tabIndex = 0;
  node.dataset.tip = tip;
  return node;
}
const labelled = (node, label) => {
  node.setAttribute('aria-label', label);
  return node;
};
const paragraph = (text, className = '') => element('p', {className}, rich(text));
const listed = notes => element('ul', {className: 'notes soft'}, notes.map(note => element('li', {}, rich(note))));
const folded = (summary, children, open = false) => element('details', {open}, [element('summary', {textContent: summary}), ...children]);

// A table of table.hpp; table.js makes it sortable.
function tableOf({name, columns, rows}) {
  const head = columns.map(({title, tip, text}) => {
    const cell = element('th', {scope: 'col', className: text ? 'text' : ''}, rich(title));
    cell.dataset.tip = tip;
    return cell;
  });
  const cellOf = (cell, column) => {
    const {text, value, tip, star, swatch, ...more} = typeof cell === 'string' ? {text: cell} : cell, nodes = rich(text), shown = tip ? [tipped(element('span', {}, nodes), tip)] : nodes;
    if (swatch) {
      const line = element('span', {className: 'swatch'});
      line.style.setProperty('--color', swatch);
      shown.unshift(line);
    }
    if (star) shown.unshift(tipped(element('span', {className: 'star', textContent: '★'}), 'The best apart from FP32, and judged better than the next.'), ' ');
    const node = element('td', {className: [more.class, column.text ? 'text' : '', star ? 'best' : ''].filter(Boolean).join(' ')}, shown);
    if (!column.text) node.dataset.sort = value ?? '';
    return node;
  };
  const body = rows.map(row => element('tr', {className: row.reference ? 'reference' : ''}, row.cells.map((cell, c) => cellOf(cell, columns[c]))));
  const table = element('table', {className: 'wide sortable'}, [element('thead', {}, element('tr', {}, head)), element('tbody', {}, body)]), box = labelled(element('div', {className: 'scroll', tabIndex: 0}, table), name);
  table.dataset.name = name;
  box.setAttribute('role', 'region');
  return box;
}

// ---- the first screen ------------------------------------------------------------------------

// The span of the differences: zero, the margin, the twin's band and the intervals of the rows that are shown. Below the rows is
// their axis.
function barsOf({bars}, {band, higher_is_better, unit, metric, margin}) {
  const ends = [0, -margin, margin, ...band ?? [], ...bars.flatMap(bar => [...bar.mean === null ? [] : [bar.mean], ...bar.interval ?? []])], low = Math.min(...ends), high = Math.max(...ends), room = Math.max(1e-12, .04 * (high - low));
  const place = x => 100 * (x - low + room) / (high - low + 2 * room), side = higher_is_better ? 'left' : 'right';
  const piece = (className, from, to) => {
    const node = element('i', {className});
    node.style.left = `${place(from).toFixed(2)}%`;
    if (to !== undefined) node.style.width = `${(place(to) - place(from)).toFixed(2)}%`;
    return node;
  };
  const marks = () => [...band ? [piece('band', ...band)] : [], piece('zero', 0), piece('margin', -margin), piece('margin', margin)];
  const hidden = strip => {
    strip.setAttribute('aria-hidden', 'true');
    return strip;
  };
  const rows = bars.map(bar => {
    const strip = element('span', {className: 'bar'}, [...marks(), ...bar.interval ? [piece('interval', ...bar.interval)] : [], ...bar.mean === null ? [] : [piece('mean', bar.mean)]]);
    return element('li', {}, [element('span', {className: 'name'}, rich(bar.name)), hidden(strip), element('span', {className: 'difference', textContent: bar.difference}), tipped(element('span', {className: `word ${bar.class}`, textContent: bar.word}), bar.tip)]);
  });
  const ticks = roundTicks(low, high, 2).map(value => {
    const node = piece('tick', value);
    node.append(tickNumber(value));
    return node;
  });
  rows.push(element('li', {className: 'axis soft'}, [element('span', {className: 'name', textContent: `difference (${unit})`}), hidden(element('span', {className: 'bar'}, ticks)), element('span', {className: 'difference', textContent: `dashed: margin ±${margin} ${unit}`})]));
  return [labelled(element('ul', {className: 'bars'}, rows), `Differences to FP32, in ${unit} of ${metric}; to the ${side} is worse`),
          paragraph(`Dot: mean of the pairs of seeds; bar: its 95 % interval; to the ${side} is worse${band ? '; grey: where FP32 ends after a change of every initial weight’s last bit (95 %)' : ''}.`, 'soft')];
}

const questions = {wrong: 'What is wrong, and how much?', costs: 'What does it cost, against FP32 and against its own noise?', fixes: 'Which scale or policy fixes it?'};
function screenOf(workload, index) {
  const {ranking, tile, answers, gradients} = workload.screen;
  const verdict = element('div', {className: `tile ${tile.class}`}, [element('p', {className: `verdict ${tile.soft ? 'soft' : tile.class}`, textContent: tile.verdict}), ...tile.lines.map(line => paragraph(line, 'against')), ...tile.bars.length > 0 ? barsOf(tile, workload) : []]);
  const said = element('dl', {className: 'answers'}, Object.entries(questions).flatMap(([key, question]) => [element('dt', {textContent: question}), element('dd', {id: `${key}-${index}`}, rich(answers[key]))]));
  const views = element('div', {className: 'views'});
  if (gradients) {
    const output = element('output', {id: `scale-value-${index}`}), label = element('label', {}, ['Loss scale ', output]), own = element('button', {type: 'button', className: 'recorded', textContent: 'as recorded'}), ticks = element('div', {className: 'ticks'});
    label.htmlFor = `scale-${index}`;
    output.htmlFor = `scale-${index}`;
    own.setAttribute('aria-pressed', 'true');
    ticks.setAttribute('aria-hidden', 'true');
    views.append(element('figure', {className: 'zones'}, [element('figcaption'), element('div', {className: 'histogram'}), element('div', {className: 'scale-control'}, [label, own, element('input', {type: 'range', id: `scale-${index}`, min: -10, max: 24, step: 1, value: 0}), ticks])]));
  }
  views.append(element('figure', {className: 'training'}));
  const screen = labelled(element('section', {className: 'screen', id: `workload-${index}`}, [element('h2', {className: 'only-print', textContent: workload.name}), ...ranking ? [paragraph(ranking, 'ranking')] : [], element('div', {className: 'facts'}, [verdict, said]), views]), workload.name);
  screen.dataset.screen = index;
  return screen;
}

// Buttons that choose a workload, or a list where there are many; nothing for one.
function choiceOf(workloads) {
  if (workloads.length < 2) return [];
  if (workloads.length > 5)
    return [element('p', {className: 'choice'}, element('label', {}, ['Workload ', element('select', {id: 'workload'}, workloads.map(({name}, i) => element('option', {value: i, textContent: name})))]))];
  const buttons = workloads.map(({name, screen: {word}}, i) => {
    const button = element('button', {type: 'button'}, [name, ...word ? [' ', element('span', {className: `word ${word.class}`, textContent: word.text})] : []]);
    button.dataset.choose = i;
    button.setAttribute('aria-pressed', i === 0);
    return button;
  });
  const group = labelled(element('div', {className: 'choice'}, buttons), 'Workload');
  group.setAttribute('role', 'group');
  return [group];
}

// ---- below it --------------------------------------------------------------------------------

const placeOf = (name, key, value) => {
  const node = element(name);
  node.dataset[key] = value;
  return node;
};

function scalesOf({name, overflows}, index) {
  const figure = placeOf('figure', 'chart', 'scale');
  figure.dataset.workload = index;
  return element('div', {}, [element('h3', {textContent: `Loss scale over steps: ${name}`}), figure, ...overflows ? [paragraph(overflows, 'soft')] : []]);
}

function replayOf({run, traces: scales, section: {words, table, left_out, notes}}, index) {
  const traces = placeOf('div', 'traces', index);
  traces.className = 'traces';
  return element('section', {id: index === 0 ? 'replays' : ''}, [
    element('h3', {textContent: `Policies replayed: ${run}`}), paragraph(words), tableOf(table),
    paragraph('◆ nobody has both fewer skips and less lost L1, by the ends of the intervals that are certain. Ordered by what no update used: skipped steps with all of their gradient, the others with what rounds to zero. Losses are means over the steps that are not skipped.', 'soft'),
    ...left_out.length > 0 ? [folded('Policies that histograms cannot replay', [listed(left_out)])] : [],
    ...scales ? [element('h4', {textContent: 'Scale traces'}), traces, paragraph(scales.caption, 'soft')] : [],
    ...notes.length > 0 ? [listed(notes)] : []]);
}

function networkOf({summary, layers, unfilled, file, picture}, name) {
  const drawn = picture ? [element('figure', {}, [element('img', {className: 'still', alt: `The network of ${name}`, src: picture}), element('figcaption', {textContent: `The network as a graph; figures/${file}.svg is the same picture.`})])]
    : file ? [paragraph(`The drawing of it is figures/${file}.svg.`, 'soft')] : [];
  return folded(summary, [tableOf(layers), ...unfilled ? [paragraph('*: an extent is no multiple of 8, so 16-bit products of this shape do not fill tensor cores.', 'soft')] : [], ...drawn]);
}

const blocksOf = ({configurations}, i) => configurations.flatMap(({label, blocks}, c) => {
  if (!blocks) return [];
  const panels = placeOf('div', 'blocks', `${i},${c}`);
  panels.className = 'pair';
  return [folded(`Blocks: what operands lost to the recipe of ${label}`, [panels], configurations.filter(other => other.blocks)[0].label === label)];
});

const mismatchesOf = ({configurations}, i) => configurations.flatMap(({label, mismatch}, c) => {
  if (!mismatch) return [];
  return [folded(`Mismatch: why another engine gives the targets of ${label} other log-probabilities`, [placeOf('div', 'mismatch', `${i},${c}`)], true)];
});

function tablesOf({workloads, overview, observed}) {
  const nodes = overview ? [element('h3', {id: 'overview', textContent: 'Against FP32, over all workloads'}), paragraph('Mean paired difference of the final metric to FP32, in the metric’s own sign, and its verdict: equal (within the workload’s margin), better, worse, or cannot tell.', 'soft'), tableOf(overview)] : [];
  workloads.forEach((workload, i) => {
    const {name, summary, network} = workload;
    const costs = placeOf('div', 'costs', i);
    costs.className = 'pair';
    nodes.push(element('h3', {textContent: name}), paragraph(summary.words, 'soft'), tableOf(summary.table), costs, ...blocksOf(workload, i), ...mismatchesOf(workload, i), ...network ? [networkOf(network, name)] : []);
  });
  if (observed.length > 0) nodes.push(element('h3', {id: 'tensors', textContent: 'Other tensors'}), paragraph('What the first seed of each configuration recorded besides gradients (observe.tensors), in the last step in which it did.'),
    ...observed.map(({summary, words, table}) => folded(summary, [paragraph(words, 'soft'), tableOf(table)])));
  return nodes;
}

function provenanceOf({computed_by, groups}) {
  const columns = [['run', ''], ['state', 'text'], ['seed', ''], ['steps', ''], ['start', 'text'], ['end', 'text'], ['last state_hash', 'text']];
  const groupOf = ({facts, commands, count, runs, configuration}) => {
    const one = commands.length === 1 ? [['command', `\x02c${commands[0]}\x03`]] : [];
    const rows = runs.map(cells => element('tr', {}, cells.map((cell, c) => element('td', {className: columns[c][1]}, c === 6 && cell !== '–' ? element('code', {textContent: cell}) : String(cell)))));
    const table = element('table', {}, [element('thead', {}, element('tr', {}, columns.map(([textContent, className]) => element('th', {textContent, className})))), element('tbody', {}, rows)]);
    return [element('dl', {className: 'facts'}, [...one, ...Object.entries(facts)].flatMap(([name, text]) => [element('dt', {textContent: name}), element('dd', {}, rich(text))])),
            folded(count === 1 ? '1 run' : `${count} runs`, [
              element('div', {className: 'scroll'}, table),
              ...runs.length < count ? [paragraph(`And ${count - runs.length} more: command, start and end are in the manifest.json of each, its state_hash in steps.csv.`, 'soft')] : [],
              ...commands.length > 1 ? [paragraph('Commands:', 'soft'), element('pre', {textContent: commands.join('\n') + '\n'})] : [],
              paragraph(`Resolved configuration of ${runs[0][0]}:`, 'soft'), element('pre', {textContent: configuration})])];
  };
  return [element('h3', {textContent: 'What computed the runs'}), tableOf(computed_by), ...groups.flatMap(groupOf)];
}

function buildPage({subtitle, follow, workloads, replays, notes, extent, runs, provenance, ...more}) {
  const any = provenance !== null, fill = (id, nodes) => {
    at(id).append(...nodes);
    at(id).hidden = at(id).childElementCount < 2;
  };
  at('subtitle').append(subtitle);
  if (follow > 0) {
    const going = element('strong', {id: 'follow', textContent: 'still training'});
    going.dataset.seconds = follow;
    at('subtitle').append('; ', going, `: this page is loaded again every ${follow} s`);
  }
  at('screens').append(...choiceOf(workloads), ...workloads.map(screenOf));
  if (any) fill('words', [element('div', {className: 'prose'}, workloads.map(({name, words}) => element('p', {}, [element('strong', {textContent: `${name}.`}), ' ', ...rich(words)]))),
    ...notes.length > 0 ? [folded(`${notes.length === 1 ? '1 note' : `${notes.length} notes`} about these runs`, [listed(notes)], notes.length <= 4)] : [], element('p', {id: 'extent', className: 'soft'}, rich(extent))]);
  const explored = runs.length > 0;
  at('pictures').hidden = at('gradients').hidden = !explored;
  at('no-gradients').hidden = explored || !any;
  if (!explored) for (const id of ['pictures', 'gradients']) at(id).remove();
  if (replays.length > 0) at('policies').querySelector('h2').textContent = 'Policies and replays';
  fill('policies', [element('div', {className: 'pair'}, workloads.map(scalesOf)), ...replays.map(replayOf)]);
  fill('tables', workloads.length > 0 ? tablesOf({workloads, ...more}) : []);
  if (any) fill('provenance', provenanceOf(provenance));
  const links = {words: 'In words', gradients: 'Explorer', policies: 'Policies', tables: 'Tables', provenance: 'Provenance'};
  at('sections').append(...Object.entries(links).filter(([id]) => at(id) && !at(id).hidden).flatMap(([id, textContent]) => [element('a', {href: `#${id}`, textContent}), ' ']));
}
