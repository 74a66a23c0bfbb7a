// What pictures share: SVG, colours, figures that draw themselves when they come into sight, and take themselves home.
const at = id => document.getElementById(id);
const element = (name, attributes = {}, children = []) => {
  const node = Object.assign(document.createElement(name), attributes);
  node.append(...[].concat(children));
  return node;
};
const narrow = matchMedia('(max-width: 44rem)');  // no room beside a chart
const darkMode = matchMedia('(prefers-color-scheme: dark)');
let printing = false;  // paper is white
const palette = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#888888'];  // Okabe and Ito 2008
// The styles of lines are made for white paper; on a dark page each colour is mixed with a third of white.
const pale = color => '#' + [1, 3, 5].map(i => Math.round(parseInt(color.slice(i, i + 2), 16) * .65 + 255 * .35).toString(16).padStart(2, '0')).join('');
const stroked = color => ({stroke: color, style: `stroke: light-dark(${color}, ${pale(color)})`});
const filled = color => ({fill: color, style: `fill: light-dark(${color}, ${pale(color)})`});

const NS = 'http://www.w3.org/2000/svg';
function svg(name, attributes, children = []) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of [].concat(children)) node.append(child);
  return node;
}
const words = (x, y, text, attributes = {}) => svg('text', {x, y, ...attributes}, text);
const picture = (width, height, label, attributes = {}) => svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label, ...attributes});
const path = points => points.length === 0 ? '' : 'M' + points.map(p => p.map(v => v.toFixed(1)).join(',')).join('L');

// One hatch for each zone: colour is never the only sign. They stand once in the page, where nothing hides them.
const hatches = (() => {
  const hatch = (id, color, d) => svg('pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse'}, [
    svg('rect', {width: 6, height: 6, fill: color, 'fill-opacity': .28}), svg('path', {d, stroke: color, 'stroke-width': 1.6})]);
  return svg('defs', {}, [
    hatch('p-lost', 'var(--lost)', 'M-1,1 L1,-1 M0,6 L6,0 M5,7 L7,5'), hatch('p-subnormal', 'var(--subnormal)', 'M0,1 L6,1 M0,4 L6,4'),
    hatch('p-edge', 'var(--overflow)', 'M0,0 L6,6 M-1,5 L1,7 M5,-1 L7,1'), hatch('p-overflow', 'var(--overflow)', 'M0,0 L6,6 M0,6 L6,0')]);
})();
document.body.prepend(svg('svg', {width: 0, height: 0, 'aria-hidden': 'true', style: 'position:absolute'}, hatches));

function save(name, type, text) {
  const link = element('a', {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  link.click();
  URL.revokeObjectURL(link.href);
}
// A picture as a file of its own: what the page's style sheet says is written into it.
const written = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-opacity', 'fill-opacity', 'font-size', 'font-weight', 'font-family', 'text-anchor', 'paint-order'];
function svgFile(shown) {
  const copy = shown.cloneNode(true), paper = getComputedStyle(document.body).backgroundColor;
  const inline = (from, to) => {
    const style = getComputedStyle(from);
    to.setAttribute('style', written.map(key => `${key}:${style.getPropertyValue(key)}`).join(';').replaceAll('"', "'"));
    for (const key of ['fill', 'stroke', 'class']) to.removeAttribute(key);  // the style has them
    [...from.children].forEach((child, i) => inline(child, to.children[i]));
  };
  inline(shown, copy);
  copy.removeAttribute('tabindex');
  const defs = hatches.cloneNode(true);
  inline(hatches, defs);
  copy.prepend(defs, svg('rect', {width: '100%', height: '100%', fill: paper}));
  copy.setAttribute('xmlns', NS);
  return new XMLSerializer().serializeToString(copy);
}

// A figure: a picture, its caption, and a button that saves it. paint(width) returns {picture, caption}; it is called when the
// figure first comes into sight, and again when its width or the colours change. What figureIn returns is called when there is
// something new to paint, which waits until the figure is in sight again.
const figures = [];
function figureIn(place, name, paint, captionFirst = false) {
  const caption = element('figcaption'), box = element('div', {className: 'picture scroll'});
  const button = element('button', {type: 'button', className: 'save', textContent: 'SVG', title: `Save “${name}” as an SVG file`});
  button.setAttribute('aria-label', `Save as SVG: ${name}`);
  const foot = element('div', {className: 'foot'}, [caption, button]);
  place.replaceChildren(...captionFirst ? [foot, box] : [box, foot]);
  let drawn = false, stale = true, inSight = false, width = 0;
  const redraw = () => {
    // Paper has its own width, and shows what is put away on the screen.
    width = printing ? place.closest('.formats-beside') ? 460 : 960 : place.clientWidth;
    if (width === 0) return;
    drawn = true;
    stale = false;
    const result = paint(width);
    box.replaceChildren(result.picture);
    if (result.picture.getAttribute('width') > width + 1 && !printing) {
      box.tabIndex = 0;
      box.setAttribute('role', 'region');
      box.setAttribute('aria-label', name);
    } else for (const key of ['tabindex', 'role', 'aria-label']) box.removeAttribute(key);
    caption.textContent = result.caption.replaceAll(" %", "\u00a0%");
  };
  button.addEventListener('click', () => save(name.replace(/[^\w]+/g, '-') + '.svg', 'image/svg+xml', svgFile(box.querySelector('svg'))));
  new IntersectionObserver(entries => {
    inSight = entries.at(-1).isIntersecting;
    if (inSight && stale) redraw();
  }, {rootMargin: '600px'}).observe(place);
  new ResizeObserver(() => { if (drawn && place.clientWidth !== width && !printing) redraw(); }).observe(place);
  figures.push({redraw, drawn: () => drawn});
  return () => {
    stale = true;
    if (inSight || (!drawn && place.getBoundingClientRect().top < innerHeight)) redraw();
  };
}
darkMode.addEventListener('change', () => figures.filter(figure => figure.drawn()).forEach(figure => figure.redraw()));
window.addEventListener('beforeprint', () => {
  printing = true;
  figures.forEach(figure => figure.redraw());
});
window.addEventListener('afterprint', () => {
  printing = false;
  figures.forEach(figure => figure.redraw());
});

// Which of the curves are drawn over one another: lists of labels. `same` takes two curves.
function coinciding(curves, same) {
  const groups = [];
  for (const curve of curves) {
    const group = groups.find(([first]) => same(first, curve));
    if (group) group.push(curve);
    else groups.push([curve]);
  }
  return groups.filter(group => group.length > 1).map(group => group.map(curve => curve.label));
}
// Nearer to one another than half a percent of `span`, everywhere: one line, as drawn. `axis` is what the axis does to a value.
const drawnAsOne = (span, axis = y => y) => (a, b) => a.points.length === b.points.length &&
  a.points.every(({x, y}, i) => x === b.points[i].x && Math.abs(axis(y) - axis(b.points[i].y)) <= .005 * span);
const coincidence = groups => groups.length === 0 ? '' : ' These coincide: ' + groups.map(labels => labels.join(' = ')).join('; ') + '.';
