// Figures of the page: they draw themselves when they come into sight, and can be saved as files.
const at = id => document.getElementById(id);
const element = (name, attributes = {}, children = []) => {
  const node = Object.assign(document.createElement(name), attributes);
  node.append(...[].concat(children));
  return node;
};
const narrow = matchMedia('(max-width: 44rem)');  // no room beside a chart
const darkMode = matchMedia('(prefers-color-scheme: dark)');
let printing = false;  // paper is white
const isDark = () => darkMode.matches && !printing;

// The page holds the hatches once, where nothing hides them.
const hatches = makeHatches();
document.body.prepend(svg('svg', {width: 0, height: 0, 'aria-hidden': 'true', style: 'position:absolute'}, hatches));

function save(name, type, text) {
  const link = element('a', {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  link.click();
  URL.revokeObjectURL(link.href);
}
// A picture as a file of its own, with the page's style sheet written into it.
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
    // Paper has its own width, and shows what the screen hides.
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
