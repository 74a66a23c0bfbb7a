// What every loss scale would lose, one line a tensor, with a mark at the slider's scale.
const mostLines = 16;  // more tensors than that: those that lose most

const leastShare = .001;  // percent: the floor of the logarithmic axis

function drawWhatIf(width, {tensors, formats, what_if}, marked) {
  const layers = [], parts = [], indexIn = (list, item) => list.includes(item) ? list.indexOf(item) : list.push(item) - 1;
  const curve = rates => rates.map((y, i) => ({x: data.scales[0] + i, y: Math.max(leastShare, 100 * y)}));
  const total = rates => rates.reduce((a, b) => a + b, 0);
  const drawn = tensors.map((name, i) => i).filter(i => formats[i].rounds).sort((a, b) => total(what_if.lost[b]) - total(what_if.lost[a])).slice(0, mostLines).sort((a, b) => a - b);
  const series = drawn.map(i => {
    const dot = tensors[i].lastIndexOf('.');
    const color = palette[indexIn(layers, tensors[i].slice(0, dot)) % palette.length], dash = [[], [7, 4], [2, 3], [8, 3, 2, 3]][indexIn(parts, tensors[i].slice(dot)) % 4];
    return {label: tensors[i], points: curve(what_if.lost[i]), color, width: 2, dash};
  });
  series.push({label: 'all tensors', points: curve(what_if.merged_lost), color: '#444444', width: 4});
  const overflows = what_if.merged_overflow.findIndex(share => share > 0), rounded = formats.filter(format => format.rounds).length;
  const chart = lineChart(width, 400, 'Share of gradients that round to zero against the loss scale, by tensor', series,
    {title: 'loss scale', ticks: () => Array.from({length: 18}, (_, i) => data.scales[0] + 2 * i), text: power},
    {title: 'non-zero gradients that would round to zero (%), logarithmic', log: true, low: leastShare, high: 100, limit: .1, text: v => v > leastShare ? String(Number(v.toPrecision(3))) : `≤ ${leastShare}`}, marked);
  return {picture: chart, caption: 'Each line is the share of one tensor’s own non-zero gradients that would round to zero at a loss scale; the broad one is all tensors together. Dashed are the slider and the limit of 0.1 %; what loses less than 0.001 % lies on the floor. ' +
    (overflows < 0 ? 'Nothing overflows at any of these scales.' : `From ${power(data.scales[0] + overflows)} on something overflows.`) +
    (drawn.length < rounded ? ` These are the ${drawn.length} of ${rounded} tensors that lose most.` : '') + coincidence(coinciding(series, drawnAsOne(Math.log(100 / leastShare), Math.log)))};
}
