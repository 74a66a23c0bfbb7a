// A figure as a picture of its own: {stem, title, subject, caption, columns, axes, styles, panels}. A panel is one of the kinds
// below, or all are heat maps (heatmap.js); the page prints the caption beside the picture; `axes` and `styles` (of curves, by
// their labels) hold once what many panels share; `subject` says in a picture without its title which run it shows.
const kinds = {
  plot: {draw: drawPlot, height: (panel, width) => panel.height ?? (panel.y.names ? 62 + (panel.y.tall ?? 20) * panel.y.names.length + (panel.title ? 18 : 0) : Math.round(Math.min(360, Math.max(210, .62 * width))))},
  histogram: {draw: drawHistogramPanel, column: 190, height: (panel, width) => (panel.title ? 34 : 0) + Math.round(Math.min(330, Math.max(panel.what ? 196 : width < 240 ? 130 : 160, .46 * width)))},
  bars: {draw: drawBars},
  traces: {draw: (panel, width) => {
    return stacked(drawTraces(panel, width), traceColumns(width), width, 18, 'Loss scales that each policy would have had', true);
  }}};
const drawPanel = (panel, width) => kinds[panel.kind].draw(panel, width, kinds[panel.kind].height?.(panel, width));

// Pictures in rows, each as high as its highest; `low`: the others are at its lower edge.
function stacked(pictures, columns, width, gap, label, low = false) {
  const whole = picture(width, 0, label), one = (width - gap * (columns - 1)) / columns, size = (p, key) => Number(p.getAttribute(key));
  let y = 0;
  for (let i = 0; i < pictures.length; i += columns) {
    const row = pictures.slice(i, i + columns), tall = Math.max(...row.map(p => size(p, 'height')));
    row.forEach((p, k) => {
      p.setAttribute('x', k * (one + gap));
      p.setAttribute('y', low ? y + tall - size(p, 'height') : y);
      whole.append(p);
    });
    y += tall + (i + columns < pictures.length ? gap : 0);
  }
  whole.setAttribute('height', y);
  whole.setAttribute('viewBox', `0 0 ${width} ${y}`);
  return whole;
}

// `width` in pixels of 1/96 inch; as many panels side by side as have room. `title`: whether the picture has its title. In a
// column of paper letters are 7 points high, else 9.
function drawFigure(figure, {width: outer = figure.width ?? (figure.columns > 1 ? 1040 : 720), title = true} = {}) {
  const narrow = outer < 420, width = narrow ? 1.3 * outer : outer, margin = 10, inner = width - 2 * margin, gap = narrow ? 12 : 24;
  const all = figure.panels.every(panel => panel.kind === 'histogram') ? fitted(figure.panels) : figure.panels;
  // Panels of the same rows stay side by side, with the names of the rows before the first.
  const names = all.length > 1 && all.every((panel, i) => panel.y?.names && Boolean(panel.y.hidden) === i > 0) ? Math.min(.34 * inner, 12 + Math.max(...all[0].y.names.map(name => textWidth(name)))) : 0;
  const columns = names > 0 ? all.length : Math.max(1, Math.min(figure.columns ?? 1, Math.floor((inner + gap) / (gap + Math.max(...all.map(panel => kinds[panel.kind]?.column ?? 246))))));
  const one = (inner - names - gap * (columns - 1)) / columns;
  // In a column each panel has the text that the first one has for all panels in a row.
  const alone = panel => columns > 1 || panel.kind !== 'plot' ? panel : {...panel, labels: undefined, y: {...panel.y, hidden: false}};
  const panels = () => all.map((panel, i) => drawPanel({...alone(panel), styles: panel.styles ?? figure.styles, keyed: all.length === 1, ...names > 0 && {y: {...panel.y, room: names, tall: narrow ? 13 : undefined}}}, one + (i === 0 ? names : 0)));
  const lines = title ? wrapped(figure.title, inner, 14.5 / 12 * boldSize) : [];
  const axes = [...!title && figure.subject ? [figure.subject] : [], ...figure.axes && all.length > 1 ? [figure.axes] : []].flatMap(text => wrapped(text, inner));
  const drawn = all[0]?.kind === 'heat' ? [drawHeatMaps(all, inner)] : panels();
  // Keys stand once for all panels.
  const unkeyed = drawn.flatMap(panel => panel.unkeyed ?? []), keys = keyPlaces(unkeyed.filter((s, i) => unkeyed.findIndex(other => other.label === s.label) === i), inner);
  const content = stacked(drawn, drawn.length === 1 ? 1 : columns, inner, gap, figure.title);
  if (names > 0) drawn.forEach((panel, i) => panel.setAttribute('x', i === 0 ? 0 : names + i * (one + gap)));
  const top = margin + 19 * lines.length + 15 * axes.length + (lines.length + axes.length ? 8 : 0);
  const floor = top + Number(content.getAttribute('height')), height = floor + (keys.length > 0 ? 18 + 18 * keys.at(-1).row : 0) + margin, whole = picture(width, height, figure.title);
  whole.append(svg('title', {}, figure.title), svg('desc', {}, figure.caption ?? ''), makeHatches(), svg('rect', {width, height, fill: 'var(--paper)'}));
  lines.forEach((line, i) => whole.append(words(margin, margin + 15 + 19 * i, line, {class: 'heading'})));
  axes.forEach((line, i) => whole.append(words(margin, margin + 14 + 19 * lines.length + 15 * i, line, {class: 'soft'})));
  content.setAttribute('x', margin);
  content.setAttribute('y', top);
  const below = svg('g', {transform: `translate(${margin} ${floor})`});
  drawKeys(below, keys, 0);
  whole.append(content, below);
  whole.setAttribute('width', outer);
  whole.setAttribute('height', Math.round(height * outer / width));
  return whole;
}
