// What pictures show of a report's data (report_data.hpp): plain objects for drawPanel() and drawFigure(), with the sentences
// beside them. The page draws panels one by one, draw.js all figures of a report (figuresOf).

// ---- curves of training ----------------------------------------------------------------------

// What can be drawn of a workload: [key of the configurations' curves, name, part of the run that is cut off].
function curveKinds({configurations, split, quantity}) {
  const any = key => configurations.some(c => c[key] && c[key].step.length > 1);
  const chosen = [['curve', 'training loss', 0], ['curve', 'training loss, last third', 2 / 3]];
  if (any('evaluation')) chosen.push(['evaluation', `${split} loss`, 0]);
  if (any('quality')) chosen.push(['quality', `${split} ${quantity}`, 0]);
  return chosen;
}

// More than eight curves in one chart show nothing: then FP32, what went worst and what went best, until others are chosen.
const mostCurves = 8;
function chooseCurves(workload) {
  const all = workload.configurations, badness = c => c.reference ? -Infinity : c.diverged ? Infinity : c.difference ?? 0;
  for (const c of all) c.shown = all.length <= mostCurves;
  if (all.length <= mostCurves) return;
  const ordered = all.filter(c => !c.fp32).sort((a, b) => badness(b) - badness(a));
  for (const c of [...all.filter(c => c.fp32), ...ordered.slice(0, 3), ...ordered.slice(-3)]) c.shown = true;
}

const stylesOf = workload => Object.fromEntries(workload.configurations.filter(c => c.shown).map(c => [c.label, c.style]));

function lossPlot(workload, [key, name, part]) {
  const last = Math.max(1, ...workload.configurations.map(c => c.curve.step.at(-1) ?? 0));
  const series = workload.configurations.filter(c => c.shown && c[key]).map(c => {
    const curve = c[key], kept = curve.step.map((x, i) => i).filter(i => curve.step[i] >= part * last);
    return {label: c.label, points: kept.map(i => [curve.step[i], curve.mean[i]]), low: kept.map(i => curve.low[i]), high: kept.map(i => curve.high[i])};
  }).filter(s => s.points.length > 0);
  const all = series.flatMap(s => [...s.low, ...s.high]), log = Math.min(...all) > 0 && Math.max(...all) / Math.min(...all) > 5, {low, high} = ended({log}, all, .04);
  const title = part > 0 ? 'training loss' : name, axis = log ? Math.log : y => y;
  const said = key === 'curve' ? `The ${title} is the mean over seeds${workload.stretched ? ', averaged over short stretches of steps' : ''}${part > 0 ? '; this is the last third' : ''}` : `The ${name} is the mean over seeds`;
  const same = drawnAsOne(axis(high) - axis(low), axis);
  return {lines: groupsOf(series, same).length, panel: {kind: 'plot', label: `${title} over steps, ${workload.name}`, series, styles: stylesOf(workload), x: {title: 'step', form: 'count', low: part > 0 ? Math.ceil(part * last) : undefined}, y: {title: title + (log ? ', logarithmic' : ''), log}},
          caption: `${said}; bands reach from the lowest to the highest seed.` + coincidence(coinciding(series, same))};
}

// Does a loss scale say anything?
const hasScales = workload => workload.configurations.some(c => c.trace && !c.fp32 && (c.trace.skipped.length > 0 || c.trace.changes.some(([, scale]) => scale !== c.trace.changes[0][1])));
function scalePlot(workload) {
  const shown = workload.configurations.filter(c => c.trace && !c.fp32 && c.shown);
  const series = shown.map(c => ({label: c.label, stepped: true, points: c.trace.changes.map(([x, s]) => [x, Math.log2(s)])}));
  const skipped = shown.flatMap(c => c.trace.skipped.map(([x, s]) => [x, Math.log2(s)]));
  const paths = coincidence(coinciding(series, drawnAsOne(0)));
  if (skipped.length > 0) series.push({label: 'skipped step', mark: 'cross', width: 0, color: '#D55E00', points: skipped});
  const all = series.flatMap(s => s.points.map(p => p[1])), low = Math.floor(Math.min(...all, 0)), high = Math.ceil(Math.max(...all, 1));
  return {panel: {kind: 'plot', label: `loss scale over steps, ${workload.name}`, series, styles: stylesOf(workload), x: {title: 'step', form: 'count'},
                  y: {title: 'loss scale', low: low - .3, high: high + .3, form: 'power2'}},
          caption: `The loss scale of the first seed of each configuration${skipped.length > 0 ? '; crosses are steps that were skipped because a gradient overflowed' : '; no step was skipped'}.` + paths};
}

// ---- final quality ---------------------------------------------------------------------------

// A row a configuration: a dot each seed, a bar at the mean, the interval of its pairs; the twin's band is shaded.
function qualityPlot(workload) {
  const rows = workload.configurations.filter(c => c.outcome);
  const names = rows.map(({label, outcome: {diverged, of}}) => label + (diverged > 0 ? `: ${diverged === of ? 'all' : `${diverged} of ${of}`} diverged` : ''));
  const series = rows.map(({outcome: {values, mean, interval}, style, reference}, i) => ({color: reference ? '#555555' : style.color, width: 0, mark: 'dot', points: values.map(v => [v, i + 1]),
    segments: [...interval ? [[interval[0], i + 1, interval[1], i + 1, 1.6]] : [], ...mean === null ? [] : [[mean, i + .72, mean, i + 1.28, 4]]]}));
  const against = rows.some(c => c.outcome.against), lines = against ? [{x: 0, name: 'FP32', solid: true}, {x: workload.margin, name: `margin ±${workload.margin} ${workload.unit}`}, {x: -workload.margin}] : [];
  const ends = [...rows.flatMap(c => [...c.outcome.values, ...c.outcome.interval ?? []]), ...lines.map(l => l.x), ...against && workload.band ? workload.band : []], low = Math.min(...ends), high = Math.max(...ends), room = .05 * (high > low ? high - low : Math.abs(high) || 1);
  return {panel: {kind: 'plot', series, lines, zones: against && workload.band ? [{from: workload.band[0], to: workload.band[1], color: 'var(--soft)', opacity: .2}] : [], y: {names},
                  x: {low: low - room, high: high + room, title: against ? `difference to FP32 (${workload.unit}), ${workload.higher_is_better ? 'below' : 'above'} 0 is worse` : workload.metric + (workload.higher_is_better ? ' (%)' : '')}},
          caption: `A dot is a seed, a bar the mean${against && !workload.higher_is_better ? ' (geometric, of the ratios)' : ''}${against ? `, a line 95 % of pairs, unadjusted. Equal needs the interval of 90 % inside the margin.` : '.'}` +
            (against && workload.band ? ' Shaded is where one more FP32 run whose weights were moved by one ulp ends (95 %).' : '')};
}

// ---- what a step takes -----------------------------------------------------------------------

const memoryParts = ['weights and masters', 'their gradients', 'optimizer', 'activations'];
// torch's O3 and the like have no FP32 copies to mix with.
const levelName = ({level, fp32, format}) => (fp32 ? 'FP32' : level === 'O3' ? format : `${format} mixed`) + (level ? ` (${level})` : '');

// One row a level: policies of one level take the same memory. Times are the median of its configurations.
function levelsOf({configurations}) {
  const levels = new Map();
  for (const c of configurations) {
    if (c.twin || !(c.seconds > 0)) continue;
    const name = levelName(c), key = name + JSON.stringify(c.memory ?? null);
    if (!levels.has(key)) levels.set(key, {name, memory: c.memory, seconds: [], labels: []});
    levels.get(key).seconds.push(c.seconds);
    levels.get(key).labels.push(c.label);
  }
  const rows = [...levels.values()], twice = name => rows.filter(r => r.name === name).length > 1;
  return rows.map(({name, memory, seconds, labels}) => ({name: twice(name) ? `${name}: ${labels[0]}${labels.length > 1 ? ' …' : ''}` : name, memory, seconds: seconds.sort((a, b) => a - b)[seconds.length >> 1]}));
}

// [name, panel, caption] of each.
function costPanels(workload) {
  const levels = levelsOf(workload), sized = levels.filter(l => l.memory), mebibyte = 2 ** 20, costs = [];
  if (sized.length > 0) costs.push(['memory', {kind: 'bars', rows: sized.map(l => ({name: l.name, parts: l.memory.slice(0, 4).map(b => b / mebibyte), cross: l.memory[4] / mebibyte, text: shortNumber(l.memory[4] / mebibyte)})), unit: 'MiB', keys: [...memoryParts, 'peak']},
    'Bars are bytes by shapes and dtypes at each level; the cross is the most that was alive at once in the first two steps, scratch included.']);
  if (levels.length > 0) costs.push(['time', {kind: 'bars', rows: levels.map(l => ({name: l.name, parts: [1e3 * l.seconds], text: shortNumber(1e3 * l.seconds)})), unit: 'ms a step' + (workload.emulated ? ' (emulated: not a GPU’s speed)' : ''), keys: []},
    'A step takes this long at each level, as the median, on the machine that trained, with whatever else it did: equal work may differ by half.']);
  return costs;
}

// What operands lost to a recipe: [name, panel, caption] of each.
function blockPanels({blocks: {step, operands}}) {
  const of = (key, name, title, said, low) => {
    const series = operands.map((operand, i) => ({label: operand.label, color: palette[i % palette.length], mark: step.length > 1 ? undefined : 'dot', points: step.map((x, j) => [x, operand[key][j]]).filter(([, y]) => y !== null)})).filter(s => s.points.length > 0);
    const all = series.flatMap(s => s.points.map(([, y]) => y)), high = low === 0 && all.every(y => y === 0) ? 1 : undefined, span = (high ?? Math.max(...all)) - (low ?? Math.min(...all));
    return [name, {kind: 'plot', label: `${name} over steps`, series, x: {title: 'step', form: 'count'}, y: {title, low, high}}, said + coincidence(coinciding(series, drawnAsOne(span)))];
  };
  return [of('zeroed', 'made zero', 'values made zero (%)', 'Made zero: values that are not zero and whose codes are, of all values of an operand in all layers together.', 0),
          of('saturated', 'saturated', 'values saturated (%)', 'Saturated: values beyond the largest code, which became it.', 0),
          of('headroom', 'headroom', 'headroom (binades)', 'Headroom: by how much the greatest magnitude of a block is below the largest code times its scale, as the mean over blocks.')];
}

// Why two engines disagree, cause by cause, the largest one on top: [name, panel, caption].
function mismatchPanels({mismatch: {targets, batches, b, twin, causes, operations}}) {
  const rows = [{name: 'both engines', alone: b}, ...causes, ...operations.map(({name, alone}) => ({name: `only ${name}`, alone})), ...twin ? [{name: 'one-ulp twin', alone: twin}] : []];
  const dots = (key, label, color, mark) => ({label, color, mark, width: 0, points: rows.flatMap((row, i) => (row[key]?.[0] ?? null) === null ? [] : [[row[key][0], i + 1]]),
    segments: rows.flatMap((row, i) => (row[key]?.[1] ?? null) === null ? [] : [[row[key][1], i + 1, row[key][2], i + 1, 1.6]])});
  const ends = rows.flatMap(row => [row.alone, row.without ?? []].flat()).filter(v => v !== null), low = Math.min(0, ...ends), high = Math.max(0, ...ends), room = .04 * (high - low || 1), said = v => v === null ? 'not finite' : v === 0 ? '0' : v.toPrecision(2);
  return [['by cause', {kind: 'plot', label: 'Mean distance of log-probabilities by cause', series: [dots('alone', 'alone', palette[0], 'dot'), ...causes.length > 0 ? [dots('without', 'without it', palette[1], 'ring')] : []],
    x: {low: low - room, high: high + room, title: 'mean distance of log-probabilities (nats)'}, y: {names: rows.map(row => `${row.name}: ${said(row.alone[0])}`)}},
    `Engine b against a, over ${exact(targets)} targets in ${exact(batches)} batches. A dot is engine a with this one cause of b, a ring engine b without it; a line has 95 %, over batches. A ring clearly to the left of both engines: removing this cause helps; at the same place: nothing is gained; to the right: it cancels others. The twin is engine a with every weight moved by one ulp.`]];
}

// ---- gradients -------------------------------------------------------------------------------

// What every loss scale would lose, one line a tensor.
const leastShare = .001;  // percent: the floor of the logarithmic axis
function whatIfPlot({tensors, formats, what_if}, [lowest, highest], marker) {
  const layers = [], parts = [], indexIn = (list, item) => list.includes(item) ? list.indexOf(item) : list.push(item) - 1;
  const curve = rates => rates.map((y, i) => [lowest + i, Math.max(leastShare, 100 * y)]), total = rates => rates.reduce((a, b) => a + b, 0);
  const drawn = tensors.map((name, i) => i).filter(i => formats[i].rounds).sort((a, b) => total(what_if.lost[b]) - total(what_if.lost[a])).slice(0, mostCurves).sort((a, b) => a - b);
  const series = drawn.map(i => {
    const dot = tensors[i].lastIndexOf('.');
    const color = palette[indexIn(layers, tensors[i].slice(0, dot)) % palette.length], dash = [[], [7, 4], [2, 3], [8, 3, 2, 3]][indexIn(parts, tensors[i].slice(dot)) % 4];
    return {label: tensors[i], points: curve(what_if.lost[i]), color, width: 2, dash};
  });
  series.unshift({label: 'all tensors', points: curve(what_if.merged_lost), color: '#444444', width: 4});
  const overflows = what_if.merged_overflow.findIndex(share => share > 0), rounded = formats.filter(format => format.rounds).length;
  return {panel: {kind: 'plot', label: 'Share of gradients that round to zero against the loss scale, by tensor', series, marker, height: 400, x: {title: 'loss scale', low: lowest, high: highest, ticks: Array.from({length: 18}, (_, i) => lowest + 2 * i), form: 'power2'},
                  y: {title: 'non-zero gradients that would round to zero (%), logarithmic', log: true, low: leastShare, high: 100, form: 'plain', floor: leastShare, limit: .1}},
          caption: `Each line is the share of one tensor’s own non-zero gradients that would round to zero at a loss scale; the broad one is all tensors together. Dashed ${marker === undefined ? 'is' : 'are the slider and'} the limit of 0.1 %; what loses less than 0.001 % lies on the floor. ` +
            (overflows < 0 ? 'Nothing overflows at any of these scales.' : `From ${power(lowest + overflows)} on something overflows.`) +
            (drawn.length < rounded ? ` These are the ${drawn.length} of ${rounded} tensors that lose most.` : '') + coincidence(coinciding(series, drawnAsOne(Math.log(100 / leastShare), Math.log)))};
}

// Was a value of this tensor Inf or NaN, or did its cast make one so?
const gaveInfOrNan = ({histograms, casts}, tensor, step) => histograms[step][tensor][1] + histograms[step][tensor][2] + (casts[step][tensor]?.[2] ?? 0) > 0;

const mostMaps = 12;
// A map a run, all of the tensors that lose most in all runs together; null where a run has no such tensor or rounds nothing.
const mostRows = 16;
function heatPanels(runs) {
  const kinds = new Map(runs.flatMap(run => run.tensors.map((name, t) => [name, run.kinds[t]]))), each = (run, name, value, none) => run.steps.map((step, c) => run.tensors.includes(name) ? value(run, run.tensors.indexOf(name), c) : none);
  const rates = new Map([...kinds.keys()].map(name => [name, runs.map(run => each(run, name, ({casts}, tensor, step) => castRate(casts[step][tensor]), null))])), lost = name => rates.get(name).flat().reduce((sum, rate) => sum + (Number(rate) || 0), 0);
  const tensors = [...kinds.keys()].filter(name => rates.get(name).flat().some(rate => rate !== null)), most = new Set([...tensors].sort((a, b) => lost(b) - lost(a)).slice(0, mostRows)), kept = tensors.filter(name => most.has(name));
  const turned = columns => columns[0].map((first, i) => columns.map(column => column[i]));
  const panels = kept.length === 0 ? [] : runs.map((run, r) => ({kind: 'heat', title: run.label, tensors: kept, kinds: kept.map(name => kinds.get(name)), steps: run.steps,
    rates: turned(kept.map(name => rates.get(name)[r])), crosses: turned(kept.map(name => each(run, name, gaveInfOrNan, false)))}));
  return {panels, left: kept.length < tensors.length ? ` These are the ${kept.length} of ${tensors.length} tensors that lose most.` : ''};
}

// The last observed step of a run, a panel a tensor, the worst first: three rows in a column of paper.
const mostHistograms = 6;
function histogramPanels(run) {
  const step = run.steps.length - 1, one = new Set(run.formats.map(f => f.name)).size === 1, middle = ([low, high]) => (low + high) / 2;
  const panels = run.tensors.map((name, t) => {
    const histogram = run.histograms[step][t], zones = zonesOf([...histogram.slice(0, 5), ...histogram.slice(5).map(floatOfBits)], 1, run.formats[t]);
    return {badness: [(zones.infinite + zones.nan) / Math.max(1, zones.total), ...[zones.overflow, zones.lost].map(counts => middle(counts) / Math.max(1, zones.finite))],
            panel: {kind: 'histogram', title: one ? name : `${name}, ${run.formats[t].name}`, histogram, ratio: 1, formats: [run.formats[t]], what: 'magnitude, loss scale included'}};
  }).sort((a, b) => b.badness[0] - a.badness[0] || b.badness[1] - a.badness[1] || b.badness[2] - a.badness[2]).map(({panel}) => panel);
  const left = panels.length - mostHistograms;
  return {panels: panels.slice(0, mostHistograms), caption: panels.length < 2 ? '' : (left > 0 ? `${left} of ${panels.length} tensors are left out: these are the worst` : 'The worst tensors come first') +
    ', by the share of values that are Inf or NaN, then of those that overflow, then of those that round to zero.'};
}

// ---- replays ---------------------------------------------------------------------------------

const leagueFloors = {lost: 1e-6, angle: 1e-12};  // zeros are at the left edge of a logarithmic axis
function leaguePanels(league) {
  const names = league.map(p => p.yardstick ? `(${p.label})` : p.label);
  const panel = (key, title, color, axis, hidden) => ({kind: 'plot', y: {names, hidden}, x: {title, ...axis}, labels: 'none', series: [{color, thick: 4, width: 0, mark: 'dot',
    segments: league.map((p, i) => [...p[key]].map(v => Math.max(axis.low, v)).flatMap(v => [v, i + 1])).filter(([a, , b]) => a !== b), points: league.map((p, i) => [Math.max(axis.low, p[key][1]), i + 1])}]});
  return [panel('skips', 'skipped steps', '#B84F00', {low: 0, high: Math.max(1, ...league.map(p => 1.06 * p.skips[1]))}, false),
          panel('lost', 'lost L1 (%)', '#0072B2', {log: true, low: leagueFloors.lost, high: 100}, true),
          panel('angle', '1 − cosine', '#A8457F', {log: true, low: leagueFloors.angle, high: 1}, true)];
}

// ---- all figures of a report -----------------------------------------------------------------

function figuresOf({workloads, runs, replays, scales}) {
  const figures = [], add = (stem, title, caption, panels, more = {}) => figures.push({stem, title, caption, panels, ...more});
  for (const workload of workloads) {
    chooseCurves(workload);
    const {name, slug, configurations} = workload, own = runs.filter(run => run.workload === name), kept = configurations.filter(c => c.shown).length < configurations.length ? ` ${configurations.filter(c => c.shown).length} of ${configurations.length} configurations: FP32, the worst and the best.` : '';
    if (configurations.some(c => c.curve.step.length > 0)) {
      // Curves that are one line, or few points, need no second look.
      const [whole, last] = curveKinds(workload).map(kind => lossPlot(workload, kind)), two = last.panel.series.some(s => s.points.length > 2) && last.lines > 1, bare = panel => ({...panel, styles: undefined});
      add(`loss-${slug}`, `Training loss, ${name}: mean over seeds, band from lowest to highest seed`, (two ? last.caption.replace('; this is the last third', '; the second panel is the last third') : whole.caption) + kept,
          two ? [{...bare(whole.panel), title: 'whole run', labels: 'none'}, {...bare(last.panel), title: 'last third'}] : [bare(whole.panel)], {styles: whole.panel.styles, columns: two ? 2 : 1});
    }
    const quality = qualityPlot(workload);
    if (quality.panel.y.names.length > 0) add(`quality-${slug}`, `${configurations.some(c => c.outcome?.against) ? 'Against FP32 at the end of training' : 'At the end of training'}: ${workload.metric}, ${name}`, quality.caption, [quality.panel]);
    const costs = costPanels(workload);
    if (costs.length > 0) add(`costs-${slug}`, `Memory and time of a step, ${name}`, costs.map(c => c[2]).join(' '), costs.map(c => ({...c[1], title: c[0]})), {columns: 2});
    for (const c of configurations.filter(c => c.blocks)) {
      const panels = blockPanels(c);
      add(`blocks-${slug}-${c.slug}`, `What the blocks of operands lost, ${name}, ${c.label}`, panels.map(p => p[2]).join(' '), panels.map(([, panel], i) => ({...panel, labels: i < 2 ? 'none' : undefined})), {columns: 3});
    }
    for (const c of configurations.filter(c => c.mismatch)) {
      const [[, panel, caption]] = mismatchPanels(c);
      add(`mismatch-${slug}-${c.slug}`, `Why two engines disagree, ${name}, ${c.label}`, caption, [panel]);
    }
    if (hasScales(workload)) {
      const {panel, caption} = scalePlot(workload);
      add(`loss-scale-${slug}`, `Loss scale, ${name}`, caption + kept, [panel]);
    }
    // One run represents its configuration; FP32's gradients show what a format would do.
    const first = configurations.map(c => own.find(run => run.label === c.label)), observed = first.filter(run => run?.steps.length > 0), base = observed[0];
    configurations.forEach((c, i) => {
      const run = first[i];
      if (c.fp32 || !run?.rounded) return;
      const {panels, caption} = histogramPanels(run), scale = [run.scales.at(-1)].flat();
      const subject = `${name}, ${c.label}, step ${exact(run.steps.at(-1))}, loss scale ${scale.length === 1 ? scaleText(scale[0]) : 'of each tensor'}`;
      add(`histogram-${slug}-${c.slug}`, `Gradient magnitudes before the cast, ${subject}`, caption, panels, {subject, columns: Math.min(3, panels.length), axes: 'share of the non-zero values against magnitude, loss scale included'});
    });
    if (base) {
      const {panel, caption} = whatIfPlot(base, scales);
      add(`underflow-against-scale-${slug}`, `What each loss scale would lose, ${name}: gradients of ${base.label}`, caption, [panel], {subject: `${name}, gradients of ${base.label}`});
    }
    const cast = observed.filter(run => run.rounded), {panels: maps, left} = heatPanels(cast.slice(0, mostMaps));
    if (maps.length > 0) add(`underflow-over-steps-${slug}`, `Non-zero gradients that the casts made zero, by tensor and step, ${name}`,
        (cast.length > maps.length ? `Left out for room: ${cast.slice(mostMaps).map(run => run.label).join(', ')}. ` : '') + 'A cross is Inf or NaN. FP32 casts nothing.' + left, maps, {width: maps.length > 1 ? 1040 : 760});
  }
  for (const replay of replays) {
    if (!replay.traces) continue;
    figures.push({stem: `replay-scales-${replay.slug}`, ...replay.traces});
    add(`replay-league-${replay.slug}`, `Policies replayed on ${replay.run}: less is better`, 'A dot is known; a bar goes from the lower to the upper bound. Names in parentheses were chosen in hindsight. Nothing lost is at the left edge of a logarithmic axis.', leaguePanels(replay.section.bounds), {columns: 3, subject: replay.run});
  }
  return figures;
}
