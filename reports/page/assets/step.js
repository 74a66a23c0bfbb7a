// One step of training as a circle of boxes, with this run's numbers in them.
const bytesText = bytes => bytes >= 2 ** 20 ? (bytes / 2 ** 20).toPrecision(3) + ' MiB' : (bytes / 1024).toPrecision(3) + ' KiB';

// [heading, lines, whether it is the place to look at]
function boxesOf(run, index) {
  const set = run.settings, [loss, norm, foundInf, skipped, lr, next] = run.rows[index] ?? [], low = run.rounded;
  const formats = [...new Set(run.formats.filter(f => f.rounds).map(f => f.name))].join(' and ') || 'FP32', recorded = run.scales[index];
  const scales = [...new Set([recorded].flat())], scale = scales.length === 1 ? scaleText(scales[0]) : 'a scale a tensor', scaled = low && !(scales.length === 1 && scales[0] === 1);
  const casts = run.casts[index].reduce((sum, cast) => cast ? (sum ?? [0, 0, 0]).map((n, i) => n + cast[i]) : sum, null);
  const share = n => percent(casts[0] > 0 ? n / casts[0] : 0) + ' %', number = v => v === undefined || v === null ? 'not finite' : String(Number(v.toPrecision(4)));
  const weights = run.others.find(o => o.observed === 'weights'), at_ = weights ? weights.steps.findIndex(s => s === run.steps[index]) : -1;
  const lost = at_ >= 0 ? weights.casts[at_].reduce((sum, cast) => cast ? (sum ?? [0, 0]).map((n, i) => n + cast[i]) : sum, null) : null;
  const core = low ? `${set.device === 'emulated' ? 'emulated ' : ''}${set.tensor_core ? set.tensor_core + ' ' : ''}tensor core` : 'FP32 throughout';
  const masters = set.masters > 0 ? `FP32, ${bytesText(set.masters)}` : set.parameters > 0 ? `FP32, ${bytesText(set.parameters)}` : 'FP32';
  return [
    ['Master weights', [masters], false],
    ['Cast', low ? [`to ${formats}, once a step`, ...lost && lost[0] > 0 ? [`${percent(lost[1] / lost[0])} % become zero`] : []] : ['none'], lost !== null && lost[1] > 0],
    ['Forward products', low ? [`${formats} × ${formats}, FP32 sums`, core] : [core], false],
    ['Loss × scale', [`loss ${number(loss)}`, low ? `× ${scale}` : 'unscaled'], false],
    ['Backward products', casts ? [`cast to ${formats}:`, `${share(casts[1])} to zero, ${share(casts[2])} to Inf`] : ['no gradient is rounded'], casts !== null && casts[1] > .01 * casts[0]],
    ['Unscale, check', [scaled ? `× 1 / ${scale}` : 'nothing to undo', foundInf ? 'Inf or NaN found' : `norm ${number(norm)}, all finite`], foundInf === true],
    ['Optimizer', [`${set['optimizer.name'] || 'update'}, rate ${number(lr)}`, skipped ? 'skipped' : 'stepped'], skipped === true],
    ['Decide', low && set.policy !== 'none' ? [`policy ${set.policy}`, next === null || next === undefined ? 'the last step' : scales.length === 1 && next !== scales[0] ? `next scale ${scaleText(next)}` : `scale stays ${scale}`] : ['no loss scaling'], false]];
}

function drawStep(width, run, index) {
  const wide = width > 720, boxes = boxesOf(run, index), columns = wide ? 4 : 1, gap = wide ? 34 : 26, pad = 4;
  const boxWidth = wide ? (width - 2 * pad - 3 * gap) / 4 : Math.min(width - 60, 420), tall = 68, height = wide ? 2 * tall + 44 + 2 * pad : boxes.length * (tall + gap) + pad;
  const chart = picture(width, height, `A training step of ${run.label}, seed ${run.seed}, step ${run.steps[index]}: ${boxes.map(([head, lines]) => `${head}: ${lines.join(', ')}`).join('; ')}`);
  const placeOf = i => wide ? [pad + (i < 4 ? i : 7 - i) * (boxWidth + gap), pad + (i < 4 ? 0 : tall + 44)] : [pad, pad + i * (tall + gap)];
  const arrow = points => {
    const [[a, b], [c, d]] = points.slice(-2), angle = Math.atan2(d - b, c - a), head = [-.5, .5].map(turn => [c - 9 * Math.cos(angle + turn), d - 9 * Math.sin(angle + turn)]);
    chart.append(svg('path', {d: path(points), class: 'arrow'}), svg('path', {d: path([head[0], points.at(-1), head[1]]), class: 'arrow'}));
  };
  boxes.forEach(([heading, lines, hot], i) => {
    const [x, y] = placeOf(i);
    chart.append(svg('rect', {x, y, width: boxWidth, height: tall, rx: 7, class: hot ? 'box hot' : 'box'}), words(x + 11, y + 20, `${i + 1}  ${heading}`, {class: 'zone-name'}));
    lines.forEach((line, k) => chart.append(words(x + 11, y + 39 + 17 * k, line, {class: hot ? 'hot' : 'soft'})));
    if (i === 7) return;
    const [nx, ny] = placeOf(i + 1);
    arrow(ny === y ? (nx > x ? [[x + boxWidth + 3, y + tall / 2], [nx - 3, y + tall / 2]] : [[x - 3, y + tall / 2], [nx + boxWidth + 3, y + tall / 2]]) : [[x + boxWidth / 2, y + tall + 3], [nx + boxWidth / 2, ny - 3]]);
  });
  const [x, y] = placeOf(7);
  if (wide) {
    arrow([[x + boxWidth / 2, y - 3], [x + boxWidth / 2, pad + tall + 3]]);
    chart.append(words(x + boxWidth / 2 + 8, y - 17, 'next step', {class: 'soft'}));
  } else {
    const out = pad + boxWidth + 22;
    arrow([[pad + boxWidth, y + tall / 2], [out, y + tall / 2], [out, pad + tall / 2], [pad + boxWidth + 3, pad + tall / 2]]);
  }
  return {picture: chart, caption: `This is step ${exact(run.steps[index])} of “${run.label}”, seed ${run.seed}, as it was recorded; shares are of all non-zero gradients of the step. A box in colour is where values were lost or an update was skipped.`};
}
