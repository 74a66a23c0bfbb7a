// Curves of training: losses with bands over seeds, the path of the loss scale.

// What can be drawn of a workload: [key of the configurations' curves, name, part of the run that is cut off].
function curveKinds({configurations, split, quantity}) {
  const any = key => configurations.some(c => c[key] && c[key].step.length > 1);
  const kinds = [['curve', 'training loss', 0], ['curve', 'training loss, last third', 2 / 3]];
  if (any('evaluation')) kinds.push(['evaluation', `${split} loss`, 0]);
  if (any('quality')) kinds.push(['quality', `${split} ${quantity}`, 0]);
  return kinds;
}

function lossChart(width, height, workload, [key, name, part]) {
  const last = Math.max(1, ...workload.configurations.map(c => c.curve.step.at(-1) ?? 0));
  const series = workload.configurations.filter(c => c.shown && c[key]).map(c => {
    const curve = c[key], kept = curve.step.map((x, i) => i).filter(i => curve.step[i] >= part * last);
    return {label: c.label, ...c.style, points: kept.map(i => ({x: curve.step[i], y: curve.mean[i]})), low: kept.map(i => curve.low[i]), high: kept.map(i => curve.high[i])};
  }).filter(s => s.points.length > 0);
  const all = series.flatMap(s => [...s.low, ...s.high]), low = Math.min(...all), high = Math.max(...all), log = low > 0 && high / low > 5;
  const title = part > 0 ? 'training loss' : name, axis = log ? Math.log : y => y;
  const said = key === 'curve' ? `The ${title} is the mean over seeds, averaged over short stretches of steps${part > 0 ? '; this is the last third' : ''}` : `The ${name} is the mean over seeds`;
  return {picture: lineChart(width, height, `${title} over steps, ${workload.name}`, series, {title: 'step', low: part > 0 ? Math.floor(part * last) : undefined}, {title: title + (log ? ', logarithmic' : ''), log}),
          caption: `${said}; bands reach from the lowest to the highest seed.` + coincidence(coinciding(series, drawnAsOne(axis(high) - axis(low), axis)))};
}

function scaleChart(width, workload) {
  const shown = workload.configurations.filter(c => c.trace && !c.fp32 && c.shown);
  const series = shown.map(c => ({label: c.label, ...c.style, stepped: true, points: c.trace.changes.map(([x, s]) => ({x, y: Math.log2(s)}))}));
  const skipped = shown.flatMap(c => c.trace.skipped.map(([x, s]) => ({x, y: Math.log2(s)})));
  const paths = coincidence(coinciding(series, drawnAsOne(0)));
  if (skipped.length > 0) series.push({label: 'skipped step', marks: true, points: skipped});
  const all = series.flatMap(s => s.points.map(p => p.y));
  const low = Math.floor(Math.min(...all, 0)), high = Math.ceil(Math.max(...all, 1));
  const ticks = () => roundTicks(low, high, 6).filter(Number.isInteger);
  const config = {title: 'loss scale', low: low - .3, high: high + .3, ticks, text: v => Number.isInteger(v) ? power(v) : scaleText(2 ** v)};
  return {picture: lineChart(width, 300, `loss scale over steps, ${workload.name}`, series, {title: 'step'}, config),
          caption: `The loss scale of the first seed of each configuration${skipped.length > 0 ? '; crosses are steps that were skipped because a gradient overflowed' : '; no step was skipped'}.` + paths};
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

function startScales() {
  for (const place of document.querySelectorAll('[data-chart="scale"]')) {
    const workload = data.workloads[Number(place.dataset.workload)];
    if (workload.configurations.some(c => c.trace && !c.fp32 && c.trace.changes.length > 0)) figureIn(place, `loss scale ${workload.name}`, width => scaleChart(width, workload));
    else place.replaceChildren(element('figcaption', {textContent: 'No run of this workload has a loss scale.'}));
  }
}
