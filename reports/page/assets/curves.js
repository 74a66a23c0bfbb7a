// Charts of training: losses with bands over seeds, the path of the loss scale.
const points = (curve, key) => curve.step.map((x, i) => ({x, y: curve[key][i]}));

// Round values between low and high: the more decades, the fewer in each.
function logarithmicTicks(low, high) {
  const leading = high / low > 1000 ? [1] : high / low > 30 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  const ticks = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); ++decade)
    for (const digit of leading) {
      const value = Number(digit + 'e' + decade);
      if (value >= low && value <= high) ticks.push(value);
    }
  return ticks;
}

// `part`: show only the steps from this fraction of the run on.
// `key`: the configurations' curve; `label`: of the vertical axis.
function lossChart(place, workload, key, label, part = 0) {
  const sets = [], curves = [];
  let low = Infinity, high = 0;
  const last = Math.max(0, ...workload.configurations.map(c => c.curve.step.at(-1) ?? 0));
  const cut = curve => {
    const kept = curve.step.map((x, i) => i).filter(i => curve.step[i] >= part * last);
    return Object.fromEntries(Object.entries(curve).map(([name, values]) => [name, kept.map(i => values[i])]));
  };
  workload.configurations.forEach((c, i) => {
    const whole = c[key], curve = whole && c.shown && cut(whole);
    if (!curve || curve.step.length === 0) return;
    low = Math.min(low, ...curve.low);
    high = Math.max(high, ...curve.high);
    const dots = key !== 'curve' && sets.length === 0 ? {pointRadius: c.style.width * .65, pointStyle: 'circle'} : {};
    curves.push({label: c.label, points: points(curve, 'mean')});
    sets.push(line(c.label, points(curve, 'mean'), c.style, Object.assign({order: -i}, dots)));  // later ones on top
    sets.push(line('band low', points(curve, 'low'), c.style, {borderWidth: 0, order: 2}));
    sets.push(line('band high', points(curve, 'high'), c.style, {borderWidth: 0, fill: '-1', backgroundColor: tone(c.style.color) + '33', order: 2}));
  });
  const options = frame('step', label, low > 0 && high / low > 5 ? {type: 'logarithmic', min: low * .9, max: high * 1.1} : {});
  if (part > 0) {
    options.scales.x.min = Math.floor(part * last);
    options.scales.x.ticks.includeBounds = false;  // a label there would touch the first round one
  }
  options.plugins.legend.position = 'bottom';
  if (options.scales.y.type === 'logarithmic') {
    options.scales.y.afterBuildTicks = axis => { axis.ticks = logarithmicTicks(axis.min, axis.max).map(value => ({value})); };
    Object.assign(options.scales.y.ticks, {autoSkip: false, callback: v => Number(v.toPrecision(3))});
  }
  draw(place, {type: 'line', data: {datasets: sets}, options}, `${label} over steps, ${workload.name}`);
  const axis = options.scales.y.type === 'logarithmic' ? Math.log : y => y;
  sayCoinciding(place, coinciding(curves, drawnAsOne(axis(high) - axis(low), axis)));
}

function scaleChart(place, workload) {
  const sets = [], skips = [], paths = [];
  for (const c of workload.configurations) {
    if (!c.trace || c.fp32 || !c.shown) continue;
    const path = c.trace.changes.map(([x, s]) => ({x, y: Math.log2(s)}));
    paths.push({label: c.label, points: path});
    sets.push(line(c.label, path, c.style, {stepped: true}));
    for (const [x, s] of c.trace.skipped) skips.push({x, y: Math.log2(s)});
  }
  if (skips.length > 0)
    sets.push({label: 'skipped step', data: skips, showLine: false, pointStyle: 'crossRot', pointRadius: 6, borderWidth: 2,
               borderColor: css('--lost'), backgroundColor: css('--lost'), order: -1});
  const options = frame('step', 'loss scale', {ticks: {color: css('--soft'), stepSize: 2, callback: v => Number.isInteger(v) ? power(v) : ''}});
  options.plugins.tooltip.callbacks = {label: item => item.dataset.label + ': ' + scaleText(2 ** item.parsed.y)};
  draw(place, {type: 'line', data: {datasets: sets}, options}, `loss scale over steps, ${workload.name}`);
  sayCoinciding(place, coinciding(paths, drawnAsOne(0)));
}

function drawCurves(index) {
  for (const place of document.querySelectorAll(`[data-chart][data-workload="${index}"]`)) {
    const workload = data.workloads[index], {chart, split} = place.dataset;
    if (chart === 'loss') lossChart(place, workload, 'curve', 'training loss');
    if (chart === 'loss-end') lossChart(place, workload, 'curve', 'training loss', 2 / 3);
    if (chart === 'evaluation') lossChart(place, workload, 'evaluation', split + ' loss');
    if (chart === 'quality') lossChart(place, workload, 'quality', split);
    if (chart === 'scale') scaleChart(place, workload);
  }
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
function curveChooser(place, workload, index) {
  const title = document.createElement('summary'), box = document.createElement('details'), list = document.createElement('fieldset');
  const count = () => { title.textContent = `Curves: ${workload.configurations.filter(c => c.shown).length} of ${workload.configurations.length} shown`; };
  list.append(...workload.configurations.map(c => {
    const label = document.createElement('label'), check = Object.assign(document.createElement('input'), {type: 'checkbox', checked: c.shown});
    check.addEventListener('change', () => {
      c.shown = check.checked;
      count();
      drawCurves(index);
    });
    label.append(check, ' ' + c.label);
    return label;
  }));
  count();
  box.className = 'chooser';
  box.append(title, list);
  place.replaceChildren(box);
}

function startCurves() {
  data.workloads.forEach((workload, index) => {
    chooseCurves(workload);
    if (!hasCharts) return;
    const place = document.querySelector(`[data-choose="${index}"]`);
    if (place && workload.configurations.length > 4) curveChooser(place, workload, index);
    drawCurves(index);
  });
}
