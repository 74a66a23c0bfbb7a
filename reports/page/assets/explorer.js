// The explorer: any run, any kind of tensors, any of them, any step, in its own format and in others.
const addCasts = list => list.reduce((sum, cast) => cast ? (sum ?? [0, 0, 0]).map((n, i) => n + cast[i]) : sum, null);
const formatWords = ({name, tie, normal, overflow, reached, rounds}) => rounds
  ? `${name}, to nearest even: |x| ≤ ${power(tie)} becomes zero (the tie too); values in (${power(tie)}, ${power(tie + 1)}) round up to ${power(tie + 1)}; below ${power(normal)} numbers are subnormal; ${reached ? 'from' : 'above'} ${overflow < 1e6 ? overflow : 'about ' + power(Math.round(Math.log2(overflow)))} on they overflow.`
  : `${name}: stored as computed, nothing is cast.`;
const kindWords = {gradients: 'gradient', activations: 'activation', weights: 'weight', updates: 'update over weight', optimizer_state: 'optimizer state'};
const quantity = () => scalable() ? `magnitude of gradient × ${factorText()}` : `magnitude of ${kindWords[state.kind] ?? 'value'}`;

// The page's own arithmetic against the counts that the C++ library put beside the data.
function selfCheck() {
  let compared = 0, wrong = 0;
  for (const r of data.runs)
    for (const [step, log2scale, ...expected] of r.check) {
      const scales = r.scales[step], scaleOf = tensor => typeof scales === 'number' ? scales : scales[tensor];
      const z = addZones(r.histograms[step].map((h, tensor) => r.formats[tensor].rounds ? zonesOf(h, powerOfTwo(log2scale) / scaleOf(tensor), r.formats[tensor]) : zonesOf([0, 0, 0, 0, [], 0, 0], 1, r.formats[tensor])));
      zoneKeys.flatMap(key => z[key]).forEach((n, i) => { ++compared; if (n !== expected[i]) ++wrong; });
    }
  at('self-check').textContent = wrong === 0
    ? `Self-check passed: ${exact(compared)} zone counts computed by this page equal those of the analysis library.`
    : `Self-check FAILED: ${wrong} of ${compared} zone counts differ from those of the analysis library. Do not trust the explorer.`;
  if (wrong > 0) at('self-check').className = 'alarm';
}

function fillChoices() {
  const runs = runsOf(run().workload), option = (text, value) => new Option(text, value);
  const first = [...new Map(runs.map(i => [data.runs[i].label, i]).reverse()).values()].reverse();  // a run for each configuration
  at('run').replaceChildren(...first.map(i => option(data.runs[i].label, i)));
  at('run').value = first.find(i => data.runs[i].label === run().label);
  at('seed').replaceChildren(...runs.filter(i => data.runs[i].label === run().label).map(i => option(data.runs[i].seed, i)));
  at('seed').value = state.run;
  at('kind').replaceChildren(option('gradients', 'gradients'), ...run().others.map(o => option(o.title.toLowerCase(), o.observed)));
  at('kind').value = state.kind;
  const {tensors, kinds, formats} = group(), rows = [option(formats.every(f => f.rounds) ? 'all tensors' : 'all tensors that are rounded', allTensors)];
  for (const kind of [...new Set(kinds)].sort((a, b) => (b === 'weight') - (a === 'weight')))
    rows.push(element('optgroup', {label: scalable() ? kindTitles[kind] ?? kind : kind}, tensors.map((t, i) => i).filter(i => kinds[i] === kind).map(i => option(`${spokenName(tensors[i])} (${group().rounded ? formats[i].name : 'FP32'})`, i))));
  at('tensor').replaceChildren(...rows);
  at('tensor').value = state.tensor;
  at('step').max = group().steps.length - 1;
  at('step').value = state.step;
  at('step').setAttribute('aria-valuetext', `step ${group().steps[state.step]}`);
  at('step-value').textContent = group().steps[state.step];
}

function startExplorer() {
  if (!at('histogram')) return;
  const onChange = (id, action, event = 'change') => at(id).addEventListener(event, () => {
    action(Number(at(id).value));
    show();
  });
  onChange('run', chooseRun);
  onChange('seed', chooseRun);
  at('kind').addEventListener('change', () => {
    chooseKind(at('kind').value);
    show();
  });
  onChange('tensor', tensor => { state.tensor = tensor; });
  onChange('step', step => { state.step = step; }, 'input');
  const slide = scaleSlider(at('scale'), at('scale-value'), at('recorded'), at('scale-ticks'));
  const ofWhat = () => `${tensorName()} of “${run().label}”, seed ${run().seed}, step ${group().steps[state.step]}`;

  const histogram = figureIn(at('histogram'), 'zones', width => {
    const {ratio, formats, histogram, zones} = chosenValues();
    return {picture: drawHistogram(Math.min(width, 900), narrow.matches ? 320 : 440, histogram, ratio, zones, quantity(), formats, namesOfZones()), caption: `These are the values of ${ofWhat()}.`};
  });
  const besides = [];
  const heat = figureIn(at('heat'), 'underflow by tensor and step', width => {
    const recordedRates = !state.heatFollows && run().rounded;
    const what = recordedRates ? 'share of non-zero gradients that the casts made zero, as recorded'
      : 'share of non-zero gradients that would round to zero ' + (state.heatFollows ? `at a loss scale of ${scaleText(state.scale)}` : 'in FP16 at the loss scale of each step');
    const rate = (tensor, step) => recordedRates ? castRate(run().casts[step][tensor]) : underflowRate(zonesAt(tensor, step, !state.heatFollows));
    const choose = (tensor, step) => {
      Object.assign(state, {tensor, step});
      show();
    };
    return {picture: drawHeatMap(width, run(), rate, `Map of tensors and steps: ${what}`, {chosen: state, choose}), caption: `Each cell is the ${what}, of one tensor in one step; a click chooses it.`};
  });
  const whatIf = figureIn(at('what-if-place'), 'underflow against loss scale', width => plotted(whatIfPlot(run(), data.scales, Math.log2(state.scale)), width, 400));
  const formats = figureIn(at('format-figure'), 'formats', width => {
    const {ratio, histogram} = chosenValues(), inUse = new Set(['FP32', ...run().formats.map(f => f.name), ...run().others.flatMap(o => o.observed === 'updates' ? [] : o.formats.map(f => f.name))]);
    return drawFormats(width, data.formats.filter(f => inUse.has(f.name)), histogram, ratio, scalable() ? `${tensorName()} × ${factorText()}` : tensorName(),
      state.kind === 'updates' ? ' These values are updates over their weights, which no format stores.' : '');
  });
  const step = figureIn(at('step-figure'), 'a training step', width => {
    const wanted = group().steps[state.step], index = run().steps.reduce((best, s, i) => Math.abs(s - wanted) < Math.abs(run().steps[best] - wanted) ? i : best, 0);
    return drawStep(width, run(), index);
  });
  const others = state => (state.kind === 'updates' ? data.update_formats : data.formats).filter(f => f.rounds);
  others(state).forEach((format, i) => {
    const place = element('figure');
    at('beside').append(element('div', {}, [element('h4', {textContent: format.name}), place]));
    besides.push(figureIn(place, `zones in ${format.name}`, width => {
      const range = others(state)[i], {tensors, ratio, histogram} = chosenValues();
      const zones = addZones(tensors.map(tensor => zonesOf(group().histograms[state.step][tensor], ratioOf(tensor, state.step), range)));
      return {picture: drawHistogram(width, 230, histogram, ratio, zones, quantity(), [range], namesOfZones()),
              caption: `${range.name} would make ${interval(zones.lost, zones.finite)} zero and keep ${interval(zones.subnormal, zones.finite)} as subnormal numbers; ${interval(zones.overflow, zones.finite)} would overflow.`};
    }));
  });

  views.push(() => {
    fillChoices();
    slide();
    const {tensors, formats: used, zones} = chosenValues();
    const casts = state.own ? addCasts(tensors.map(tensor => group().casts[state.step][tensor])) : null;
    fillRates(at('rates'), zones, scalable() ? factorText() : 'these values', casts, namesOfZones());
    at('formats').textContent = (group().rounded || state.kind === 'updates' ? '' : `This run rounded none of these: the rates are those that ${used.map(f => f.name).join(' and ')} would have. `) +
      (state.kind === 'updates' ? 'An update is told as a share of its weight: lost is at most half the spacing of the format’s numbers at the weight; depends: it is lost or not by where in its binade the weight is.' : used.map(formatWords).join(' '));
    at('scale-place').hidden = !scalable();
    at('of-gradients').hidden = !scalable();
    at('thinned').textContent = run().observed > run().steps.length
      ? `${run().steps.length} of the ${exact(run().observed)} observed steps are in this page, evenly chosen; the lines and the run folder know all of them.` : '';
    const left = data.workloads.filter(w => w.unexplored.length > 0).map(w => `${w.name}: ${w.unexplored.join(', ')}`);
    if (left.length > 0) at('thinned').textContent += ` Left out for room: ${left.join('; ')}.`;
    for (const redraw of [histogram, heat, whatIf, formats, step, ...besides]) redraw();
  });
  for (const id of ['heat-own', 'heat-slider'])
    at(id).addEventListener('change', () => {
      state.heatFollows = at('heat-slider').checked;
      heat();
    });
  selfCheck();
}
