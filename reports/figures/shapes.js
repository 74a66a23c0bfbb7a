// What all pictures consist of: SVG elements, colours and hatches. The page makes elements of its document, draw.js those of
// files (file.js).
const NS = 'http://www.w3.org/2000/svg';
function svg(name, attributes, children = []) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(key, value);
  for (const child of [].concat(children)) node.append(child);
  return node;
}
const words = (x, y, text, attributes = {}) => svg('text', {x, y, ...attributes}, text);
// A line of small print around `x`, inside a picture of `width`.
const centred = (x, y, text, width) => words(Math.max(textWidth(text) / 2, Math.min(x, width - textWidth(text) / 2)), y, text, {'text-anchor': 'middle', class: 'soft'});
const picture = (width, height, label, attributes = {}) => svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label, ...attributes});
const path = points => points.length === 0 ? '' : 'M' + points.map(p => p.map(v => v.toFixed(1)).join(',')).join('L');

const palette = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#888888'];  // Okabe and Ito 2008
const channels = color => [1, 3, 5].map(i => parseInt(color.slice(i, i + 2), 16));
const colorOf = values => '#' + values.map(v => Math.round(v).toString(16).padStart(2, '0')).join('');
// The styles of lines are made for white paper; on a dark page each colour is mixed with a third of white.
const pale = color => colorOf(channels(color).map(v => v * .65 + 255 * .35));
// Letters are thinner than lines: on white paper they need a darker colour.
const inked = color => {
  let values = channels(color);
  while (.2126 * values[0] + .7152 * values[1] + .0722 * values[2] > 112) values = values.map(v => v * .9);
  return colorOf(values);
};
const stroked = color => ({stroke: color, style: `stroke: light-dark(${color}, ${pale(color)})`});
const filled = color => ({fill: color, style: `fill: light-dark(${color}, ${pale(color)})`});
const lettered = color => ({fill: inked(color), style: `fill: light-dark(${inked(color)}, ${pale(color)})`});

// One hatch for each zone: colour is never the only sign.
const makeHatches = () => {
  const hatch = (id, color, d) => svg('pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse'}, [
    svg('rect', {width: 6, height: 6, fill: color, 'fill-opacity': .28}), svg('path', {d, stroke: color, 'stroke-width': 1.6})]);
  return svg('defs', {}, [
    hatch('p-lost', 'var(--lost)', 'M-1,1 L1,-1 M0,6 L6,0 M5,7 L7,5'), hatch('p-subnormal', 'var(--subnormal)', 'M0,1 L6,1 M0,4 L6,4'),
    hatch('p-zeros', 'var(--soft)', 'M1,5 L5,1'), hatch('p-blank', 'var(--line)', 'M0,3 L6,3'), hatch('p-edge', 'var(--overflow)', 'M0,0 L6,6 M-1,5 L1,7 M5,-1 L7,1'), hatch('p-overflow', 'var(--overflow)', 'M0,0 L6,6 M0,6 L6,0')]);
};

// A mark of a point: what it is called is what it looks like.
function mark(kind, x, y, color) {
  const r = 3.2, at = v => v.toFixed(1);
  if (kind === 'cross') return svg('path', {d: `M${at(x - 4)},${at(y - 4)}l8,8m0,-8l-8,8`, fill: 'none', ...stroked(color), 'stroke-width': 1.6});
  if (kind === 'square') return svg('rect', {x: at(x - r), y: at(y - r), width: 2 * r, height: 2 * r, ...filled(color)});
  if (kind === 'ring') return svg('circle', {cx: at(x), cy: at(y), r, fill: 'none', ...stroked(color), 'stroke-width': 1.4});
  if (kind === 'triangle') return svg('path', {d: `M${at(x)},${at(y - 4)}l3.8,6.6h-7.6Z`, ...filled(color)});
  return svg('circle', {cx: at(x), cy: at(y), r: kind === 'point' ? 1.6 : r, ...filled(color)});
}

// Keys in rows of at most `width` pixels: [{entry, x, row}].
function keyPlaces(entries, width) {
  let x = 0, row = 0;
  return entries.map(entry => {
    const own = 50 + textWidth(entry.label);
    if (x > 0 && x + own > width) [x, row] = [0, row + 1];
    const place = {entry, x, row};
    x += own;
    return place;
  });
}
