// A loss scale under recorded gradients: the zones are the library's, of every bin and of all values together.
const zoneWords = {lost: 'rounds to zero', subnormal: 'subnormal', normal: 'normal', overflow: 'overflow'};
const zoneKeys = Object.keys(zoneWords);
const gradientFormats = {f16: 'FP16', bf16: 'BF16', e4m3: 'E4M3', e5m2: 'E5M2'};
let recordedRows = [];

const percent = x => {
  const p = 100 * x;
  return p <= 0 ? '0' : p >= 100 ? '100' : p < .01 ? '< 0.01' : p > 99.9 ? '> 99.9' : p < .995 ? p.toFixed(2) : p < 9.95 || p >= 99 ? p.toFixed(1) : p.toFixed(0);
};
const between = ([low, high]) => percent(low) === percent(high) ? percent(low) + ' %' : `${percent(low)} to ${percent(high)} %`;
const count = ([low, high]) => low === high ? low.toLocaleString('en') : `${low.toLocaleString('en')} to ${high.toLocaleString('en')}`;
const fp32Bits = value => value ? new Uint32Array(Float32Array.of(value).buffer)[0] : 0;

// As the library takes a histogram; `row` is a line of histograms.jsonl.
const histogramText = ({before: h}) => [h.zero, h.inf, h.nan, fp32Bits(h.smallest), fp32Bits(h.greatest), h.first_exponent, ...h.counts].join(' ');
const chosenRow = () => recordedRows.find(row => row.tensor === state.tensor && String(row.step) === state.step);

function drawHistogram(row, zones) {
  const place = at('histogram'), width = Math.max(280, place.clientWidth), height = width < 460 ? 250 : 320, left = 44, right = 12, top = 46, bottom = 46;
  const shift = Number(state.scale) - Math.log2(row.loss_scale), low = -52, high = 20;
  const x = e => left + (Math.max(low, Math.min(high, e)) - low) / (high - low) * (width - left - right);
  const peak = Math.max(...zones.bins.map(bin => bin[1])) / zones.finite, y = share => height - bottom - share / (peak * 1.05) * (height - top - bottom);
  const edges = [low, zones.edges.lost, zones.edges.normal, Math.log2(zones.edges.overflow), high];
  const picture = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Magnitudes of ${state.tensor} at step ${state.step} times ${power(state.scale)}: ${zoneKeys.map(key => `${between(zones.zones[key].map(n => n / zones.finite))} ${zoneWords[key]}`).join(', ')}`});
  zoneKeys.forEach((key, i) => {
    const from = x(edges[i]), to = x(edges[i + 1]);
    picture.append(svg('rect', {x: from, y: top, width: Math.max(0, to - from), height: height - top - bottom, fill: `var(--${key})`, 'fill-opacity': .1}),
      svg('rect', {x: from + 1, y: top - 6, width: Math.max(0, to - from - 2), height: 4, fill: `var(--${key})`}));
    if (to - from < 40) return;
    picture.append(svg('text', {x: (from + to) / 2, y: top - 27, 'text-anchor': 'middle', class: 'zone-name'}, width < 460 ? {lost: 'lost', subnormal: 'subn.', normal: 'normal', overflow: 'over'}[key] : zoneWords[key]),
      svg('text', {x: (from + to) / 2, y: top - 12, 'text-anchor': 'middle'}, between(zones.zones[key].map(n => n / zones.finite))));
  });
  const spacing = [.01, .02, .05, .1, .2, .25].find(step => peak / step <= 5.5) ?? .25;
  for (let share = 0; share <= peak * 1.05; share += spacing)
    picture.append(svg('line', {x1: left, x2: width - right, y1: y(share), y2: y(share), class: 'grid'}), svg('text', {x: left - 6, y: y(share) + 4, 'text-anchor': 'end', class: 'soft'}, `${Math.round(100 * share)} %`));
  for (const [exponent, n, first, last] of zones.bins) {
    const from = x(exponent + shift), to = x(exponent + shift + 1);
    if (to <= from) continue;
    const bar = svg('rect', {x: from + .5, width: Math.max(.5, to - from - 1), y: y(n / zones.finite), height: height - bottom - y(n / zones.finite), fill: `var(--${zoneKeys[last]})`, stroke: first === last ? 'none' : `var(--${zoneKeys[first]})`, 'stroke-width': 2});
    bar.append(svg('title', {}, `${n.toLocaleString('en')} values in (${power(exponent + shift)}, ${power(exponent + shift + 1)}]: ${first === last ? zoneWords[zoneKeys[first]] : `${zoneWords[zoneKeys[first]]} to ${zoneWords[zoneKeys[last]]}`}`));
    picture.append(bar);
  }
  for (const edge of edges.slice(1, -1)) picture.append(svg('line', {x1: x(edge), x2: x(edge), y1: top, y2: height - bottom, class: 'axis', 'stroke-dasharray': '3 3'}));
  picture.append(svg('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: 'axis'}));
  for (let e = -48; e <= 16; e += width < 460 ? 16 : 8) picture.append(svg('text', {x: x(e), y: height - bottom + 17, 'text-anchor': 'middle', class: 'soft'}, power(e)));
  picture.append(svg('text', {x: (left + width - right) / 2, y: height - 6, 'text-anchor': 'middle', class: 'soft'}, width < 460 ? 'gradient × loss scale' : 'magnitude of gradient × loss scale; height: share of the non-zero values'));
  place.replaceChildren(picture);
}

function showGradients() {
  const row = chosenRow();
  for (const name of ['tensor', 'step', 'format', 'scale']) if (at(name).value !== state[name]) at(name).value = state[name];
  at('scale-value').textContent = power(state.scale);
  at('scale').setAttribute('aria-valuetext', `2 to the ${state.scale}`);
  const zones = ask('zones', histogramText(row), row.loss_scale, state.format, Number(state.scale));
  if (zones.error) throw new Error(zones.error);
  drawHistogram(row, zones);
  const lines = zoneKeys.map(key => element('tr', {'data-zone': key, 'data-lower': zones.zones[key][0], 'data-upper': zones.zones[key][1]}, [
    element('th', {class: 'text', scope: 'row'}, [element('span', {class: 'key', style: `background:var(--${key})`}), zoneWords[key]]),
    element('td', {title: count(zones.zones[key])}, between(zones.zones[key].map(n => n / zones.finite))), element('td', {}, between(zones.l1[key]))]));
  lines.push(...[['exact zeros', zones.zero], ['Inf or NaN', zones.infinite + zones.nan]].map(([name, n]) => element('tr', {}, [element('th', {class: 'text', scope: 'row'}, name), element('td', {colSpan: 2}, n.toLocaleString('en'))])));
  at('rates').replaceChildren(element('caption', {}, `${zones.finite.toLocaleString('en')} values that are finite and not zero, at ${power(state.scale)} in ${gradientFormats[state.format]}`),
    element('thead', {}, element('tr', {}, ['zone', 'values', 'of L1'].map((name, i) => element('th', {scope: 'col', class: i === 0 ? 'text' : ''}, name)))), element('tbody', {}, lines));
  at('direction').textContent = zones.cosine ? `The cosine between these gradients and what ${gradientFormats[state.format]} keeps of them is between ${zones.cosine[0].toFixed(3)} and ${zones.cosine[1].toFixed(3)}.` : 'Some values may overflow at this scale, so that nothing may be left of the gradient.';
  at('advice').textContent = zones.suggested.reasoning.replace(/2\^(-?\d+)/g, (_, k) => power(k));
}

function startGradients() {
  recordedRows = at('recorded').textContent.trim().split('\n').map(line => JSON.parse(line));
  const tensors = [...new Set(recordedRows.map(row => row.tensor))], steps = [...new Set(recordedRows.map(row => String(row.step)))];
  at('tensor').append(...tensors.map(tensor => new Option(tensor === 'loss.prediction' ? 'the loss by its prediction, dL/dy' : tensor, tensor)));
  at('step').append(...steps.map(step => new Option(step, step)));
  at('format').append(...Object.entries(gradientFormats).map(([format, name]) => new Option(name, format)));
  Object.assign(initial, {tensor: tensors[0], step: steps.at(-1)});
  for (let k = -10; k <= 24; ++k) at('scale-ticks').append(element('span', {class: k % 8 === 0 ? '' : 'minor'}, k % 2 === 0 ? power(k) : ''));
  for (const name of ['tensor', 'step', 'format', 'scale']) at(name).addEventListener('input', () => { state[name] = at(name).value; showGradients(); remember(); });
  let width = 0;
  new ResizeObserver(() => { if (at('histogram').clientWidth !== width) { width = at('histogram').clientWidth; requestAnimationFrame(showGradients); } }).observe(at('histogram'));
}
