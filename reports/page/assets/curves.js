// Choosing which curves are shown, and the place of the loss scales.
function curveChooser(workload, redraw) {
  const title = element('summary'), box = element('details', {className: 'chooser'}), list = element('fieldset');
  const count = () => { title.textContent = `Curves: ${workload.configurations.filter(c => c.shown).length} of ${workload.configurations.length} shown`; };
  list.append(...workload.configurations.map(c => {
    const check = element('input', {type: 'checkbox', checked: c.shown});
    check.addEventListener('change', () => {
      c.shown = check.checked;
      count();
      redraw();
    });
    return element('label', {}, [check, ' ' + c.label]);
  }));
  count();
  box.append(title, list);
  return box;
}

// A plot with its reading, as figureIn() expects it.
const plotted = ({panel, caption}, width, height) => ({picture: drawPlot({...panel, interactive: reading}, width, height), caption});

function startScales() {
  for (const place of document.querySelectorAll('[data-chart="scale"]')) {
    const workload = data.workloads[Number(place.dataset.workload)];
    if (hasScales(workload)) figureIn(place, `loss scale ${workload.name}`, width => plotted(scalePlot(workload), width, 300));
    else place.replaceChildren(element('figcaption', {textContent: 'No loss scale of this workload moves, and no step was skipped.'}));
  }
}

function startPanels() {
  const fill = (place, subject, panels) => {
    for (const [name, panel, caption] of panels) {
      const figure = element('figure');
      place.append(figure);
      figureIn(figure, `${name} ${subject}`, width => panel.kind === 'bars' ? {picture: drawBars(panel, width), caption} : plotted({panel, caption}, width, 260));
    }
  };
  for (const place of document.querySelectorAll('[data-costs]')) {
    const workload = data.workloads[Number(place.dataset.costs)];
    fill(place, `by level ${workload.name}`, costPanels(workload));
  }
  for (const place of document.querySelectorAll('[data-blocks]')) {
    const [workload, index] = place.dataset.blocks.split(','), configuration = data.workloads[workload].configurations[index];
    fill(place, `by operand ${configuration.label}`, blockPanels(configuration));
  }
  for (const place of document.querySelectorAll('[data-mismatch]')) {
    const [workload, index] = place.dataset.mismatch.split(','), configuration = data.workloads[workload].configurations[index];
    fill(place, `by cause ${configuration.label}`, mismatchPanels(configuration));
  }
}

// A line that follows the pointer, or the arrow keys, and says what every curve has there.
function reading(chart, series, {place, left, top, floor, width, xText, yText}) {
  const stops = [...new Set(series.flatMap(s => s.points.map(p => p[0])))].sort((a, b) => a - b);
  if (stops.length === 0) return;
  const line = svg('line', {y1: top, y2: floor, class: 'axis', visibility: 'hidden'});
  chart.append(line);
  let index = stops.length - 1;
  const value = (s, stop) => {
    const before = s.points.filter(p => p[0] <= stop).at(-1);
    return s.stepped ? before?.[1] : s.points.find(p => p[0] === stop)?.[1];
  };
  const show = () => {
    const stop = stops[index], box = chart.getBoundingClientRect();
    for (const key of ['x1', 'x2']) line.setAttribute(key, place(stop));
    line.setAttribute('visibility', 'visible');
    const told = series.map(s => [s.label, value(s, stop)]).filter(([, v]) => v !== undefined && v !== null);
    showTip([xText(stop), ...told.map(([label, v]) => `${label}: ${yText(v)}`)].join('\n'), box.left + place(stop) / width * box.width + 12, box.top + top);
  };
  const hide = () => {
    line.setAttribute('visibility', 'hidden');
    hideTip();
  };
  const nearest = wanted => stops.reduce((best, stop, i) => Math.abs(place(stop) - wanted) < Math.abs(place(stops[best]) - wanted) ? i : best, 0);
  chart.addEventListener('pointermove', event => {
    const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    if (x < left - 8) return hide();
    index = nearest(x);
    show();
  });
  chart.addEventListener('pointerleave', hide);
  chart.addEventListener('blur', hide);
  chart.addEventListener('keydown', event => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -stops.length, End: stops.length}[event.key];
    if (by === undefined) return;
    event.preventDefault();
    index = Math.max(0, Math.min(stops.length - 1, index + by));
    show();
  });
}
