// The bits of the formats in use, and on one axis how far each of them reaches and where the chosen values are.
const bitNames = ['sign', 'exponent', 'significand'], bitColors = ['var(--overflow)', 'var(--subnormal)', 'var(--normal)'], bitOpacities = [.75, .75, .55];

// Magnitudes of a histogram's finite values as powers of two, the lowest bin's bottom where the smallest is not known.
function extentOf([, , , first, counts, smallest, greatest], ratio) {
  if (counts.length === 0) return null;
  return [smallest > 0 ? Math.log2(smallest) : first, greatest > 0 ? Math.log2(greatest) : first + counts.length].map(e => e + Math.log2(ratio));
}

// `what`: the values, with the scale that they carry.
function drawFormats(width, formats, histogram, ratio, what, note) {
  width = Math.max(320, width);
  const beside = width > 760, widest = Math.max(...formats.map(f => f.bits[0] + f.bits[1] + f.bits[2])), gap = 58;
  const cell = Math.min(11, ((beside ? .36 * width : width) - gap - 6) / widest), left = beside ? gap + cell * widest + 40 : gap, right = 12;
  const tall = beside ? 46 : 74, top = 64, height = top + tall * formats.length + 40;
  const low = -150, high = 130, x = e => left + (Math.max(low, Math.min(high, e)) - low) / (high - low) * (width - left - right);
  const chart = picture(width, height, `Bits and ranges of ${formats.map(f => f.name).join(', ')}`), extent = extentOf(histogram, ratio);
  bitNames.forEach((part, i) => chart.append(svg('rect', {x: [0, 52, 132][i], y: 6, width: 10, height: 10, fill: bitColors[i], 'fill-opacity': bitOpacities[i]}), words([14, 66, 146][i], 15, part, {class: 'soft'})));
  if (extent) {
    chart.append(svg('rect', {x: x(extent[0]), y: top - 6, width: Math.max(2, x(extent[1]) - x(extent[0])), height: tall * formats.length + 6, class: 'extent'}));
    // The shape of the values, above the formats.
    const most = Math.max(...histogram[4]), shape = histogram[4].map((n, i) => [x(histogram[3] + i + .5 + Math.log2(ratio)), top - 8 - 26 * n / most]);
    chart.append(svg('path', {d: path([[x(extent[0]), top - 8], ...shape, [x(extent[1]), top - 8]]) + 'Z', class: 'shape'}));
    const middle = (x(extent[0]) + x(extent[1])) / 2, text = what;
    const anchor = middle < left + 90 ? 'start' : middle > width - 90 ? 'end' : 'middle';
    chart.append(words(anchor === 'start' ? left : anchor === 'end' ? width - right : middle, beside ? 15 : 32, text, {'text-anchor': anchor, class: 'zone-name'}));
  }
  for (let e = -140; e <= 120; e += 20) chart.append(svg('line', {x1: x(e), x2: x(e), y1: top, y2: height - 34, class: 'grid'}));
  formats.forEach((format, row) => {
    const y = top + tall * row, bitsTop = y + 8, bar = beside ? y + 10 : y + 40, [sign, exponent, fraction] = format.bits;
    chart.append(words(0, bitsTop + 14, format.name, {class: 'zone-name'}));
    for (let bit = 0; bit < sign + exponent + fraction; ++bit) {
      const part = bit < sign ? 0 : bit < sign + exponent ? 1 : 2;
      chart.append(svg('rect', {x: gap + cell * bit, y: bitsTop, width: cell - 1, height: 18, fill: bitColors[part], 'fill-opacity': bitOpacities[part]}));
    }
    chart.append(words(gap, bitsTop + 30, `1 + ${exponent} + ${fraction} bits`, {class: 'soft'}));
    const ends = [format.tie + 1, format.normal, Math.log2(format.overflow)];
    chart.append(svg('rect', {x: x(ends[0]), y: bar, width: x(ends[1]) - x(ends[0]), height: 14, fill: 'url(#p-subnormal)', stroke: 'var(--subnormal)'}),
                 svg('rect', {x: x(ends[1]), y: bar, width: x(ends[2]) - x(ends[1]), height: 14, fill: 'var(--normal)', 'fill-opacity': .75}));
    [ends[0], ends[1], Math.round(ends[2])].forEach((e, i) => {
      if (i === 1 && x(ends[1]) - x(ends[0]) < 34) return;
      chart.append(words(x(e), bar + 26, power(e), {'text-anchor': i === 2 && x(e) > width - 40 ? 'end' : 'middle', class: 'soft halo'}));
    });
  });
  for (let e = -140; e <= 120; e += beside || width > 600 ? 20 : 40) chart.append(words(x(e), height - 20, power(e), {'text-anchor': 'middle', class: 'soft'}));
  chart.append(words((left + width - right) / 2, height - 4, 'magnitude', {'text-anchor': 'middle', class: 'soft'}));
  const reach = extent ? `${what} reaches from about ${power(Math.floor(extent[0]))} to ${power(Math.ceil(extent[1]))}. ` : 'These values are all zero. ';
  const told = formats.filter(f => f.rounds).map(f => `${f.name} becomes zero at ${power(f.tie)} and overflows near ${power(Math.round(Math.log2(f.overflow)))}`).join('; ');
  return {picture: chart, caption: `${reach}Hatched are the subnormal numbers of each format, solid the normal ones${told ? '; ' + told : ''}.${note}`};
}
