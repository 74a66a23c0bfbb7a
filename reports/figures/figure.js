// A figure as a picture of its own: {stem, title, caption, columns, panels}. A panel is one of the kinds below; the caption is
// what readers are told about it, and no part of the picture.
const kinds = {
  plot: {draw: drawPlot, height: (panel, width) => panel.height ?? (panel.y.names ? 62 + 22 * panel.y.names.length + (panel.title ? 18 : 0) : Math.round(Math.min(360, Math.max(210, .62 * width))))},
  histogram: {draw: drawHistogramPanel, height: (panel, width) => (panel.title ? 34 : 0) + Math.round(Math.min(330, Math.max(196, .52 * width)))},
  bars: {draw: drawBars}, heat: {draw: drawHeatPanel},
  traces: {draw: (panel, width) => {
    const strips = drawTraces(panel, width), columns = Math.max(1, Math.min(3, Math.floor(width / 330)));
    return stacked(strips, columns, width, 18, 'Loss scales that each policy would have had', true);
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

// `width` in pixels of 1/96 inch; as many panels side by side as have room. `title`: whether the picture has its title.
function drawFigure(figure, {width = figure.width ?? (figure.columns > 1 ? 1040 : 720), title = true} = {}) {
  const margin = 10, inner = width - 2 * margin, columns = Math.max(1, Math.min(figure.columns ?? 1, Math.floor((inner + 24) / 270)));
  const same = figure.panels.every(panel => panel.kind === 'histogram') ? fitted(figure.panels) : figure.panels;
  const panels = same.map(panel => drawPanel(columns === 1 && panel.labels === 'none' && panel.y && !panel.y.names ? {...panel, labels: undefined} : {...panel}, (inner - 24 * (columns - 1)) / columns));
  const content = stacked(panels, columns, inner, 24, figure.title), lines = title ? wrapped(figure.title, inner, 14.5 / 12 * boldSize) : [], top = margin + 19 * lines.length + (lines.length ? 8 : 0);
  const height = top + Number(content.getAttribute('height')) + margin, whole = picture(width, height, figure.title);
  whole.append(svg('title', {}, figure.title), svg('desc', {}, figure.caption ?? ''), makeHatches(), svg('rect', {width, height, fill: 'var(--paper)'}));
  lines.forEach((line, i) => whole.append(words(margin, margin + 15 + 19 * i, line, {class: 'heading'})));
  content.setAttribute('x', margin);
  content.setAttribute('y', top);
  whole.append(content);
  return whole;
}
