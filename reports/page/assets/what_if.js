// What every loss scale would lose, one line a tensor, with a mark at the slider's scale.
const marker = {id: 'marker', afterDatasetsDraw(chart) {
  const {ctx, chartArea, scales} = chart, x = scales.x.getPixelForValue(chart.options.plugins.marker.log2Scale);
  if (x < chartArea.left || x > chartArea.right) return;
  ctx.save();
  ctx.strokeStyle = css('--ink');
  ctx.setLineDash([4, 3]);
  ctx.beginPath();
  ctx.moveTo(x, chartArea.top);
  ctx.lineTo(x, chartArea.bottom);
  ctx.stroke();
  ctx.restore();
}};

const mostLines = 16;  // more tensors than that: those that lose most

function drawWhatIf(place, {tensors, formats, what_if}) {
  const layers = [], parts = [], indexIn = (list, item) => list.includes(item) ? list.indexOf(item) : list.push(item) - 1;
  const curve = rates => rates.map((y, i) => ({x: data.scales[0] + i, y: 100 * y}));
  const total = rates => rates.reduce((a, b) => a + b, 0);
  const drawn = tensors.map((name, i) => i).filter(i => formats[i].rounds).sort((a, b) => total(what_if.lost[b]) - total(what_if.lost[a])).slice(0, mostLines).sort((a, b) => a - b);
  const sets = drawn.map(i => {
    const dot = tensors[i].lastIndexOf('.');
    const color = palette[indexIn(layers, tensors[i].slice(0, dot)) % palette.length], dash = [[], [7, 4], [2, 3], [8, 3, 2, 3]][indexIn(parts, tensors[i].slice(dot)) % 4];
    return line(tensors[i], curve(what_if.lost[i]), {color, width: 2, dash});
  });
  sets.push(line('all tensors', curve(what_if.merged_lost), {color: '#444444', width: 4, dash: []}));
  sets.push(line('overflow, all', curve(what_if.merged_overflow), {color: '#7B3FA0', width: 2.5, dash: [9, 3, 2, 3]}));
  const options = frame('loss scale', 'non-zero gradients that would round to zero (%)', {min: 0});
  Object.assign(options.scales.x, {min: data.scales[0], max: data.scales[1]});
  Object.assign(options.scales.x.ticks, {stepSize: 2, callback: v => power(v)});
  options.plugins.tooltip.callbacks = {title: items => 'loss scale ' + power(items[0].parsed.x)};
  options.plugins.marker = {log2Scale: 0};
  const chart = draw(place, {type: 'line', data: {datasets: sets}, options, plugins: [marker]}, 'Share of gradients that round to zero against the loss scale, by tensor');
  const curves = sets.map(set => ({label: set.label, points: set.data}));
  sayCoinciding(place, coinciding(curves, drawnAsOne(Math.max(...curves.flatMap(c => c.points.map(p => p.y))))));
  const rounded = formats.filter(format => format.rounds).length;
  if (drawn.length < rounded) place.append(Object.assign(document.createElement('p'), {className: 'soft', textContent: `${drawn.length} of ${rounded} tensors: those that lose most.`}));
  return chart;
}
