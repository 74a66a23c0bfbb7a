// Bars that follow one another in a row: {kind: "bars", title, rows: [{name, parts: [numbers], text, cross}], unit, keys:
// [names of the parts, then of the cross]}; without keys every bar has one part and one colour.
function drawBars({title, rows, unit, keys}, width) {
  const left = Math.min(.42 * width, 16 + Math.max(...rows.map(r => textWidth(r.name)))), right = 14 + Math.max(...rows.map(r => textWidth(r.text))), tall = 28;
  const legend = keyPlaces(keys.map(label => ({label})), width - 8), head = title ? 20 : 0, top = head + (keys.length ? 24 + 18 * legend.at(-1).row : 4), height = top + tall * rows.length + 40;
  const most = Math.max(...rows.map(r => Math.max(r.cross ?? 0, r.parts.reduce((a, b) => a + b, 0)))), x = v => left + v / most * (width - left - right);
  const chart = picture(width, height, title ?? unit), cross = (x, y) => svg('path', {d: `M${x - 4},${y - 4}l8,8m0,-8l-8,8`, class: 'cross'});
  if (title) chart.append(words(0, 13, shortened(title, width, boldSize), {class: 'zone-name'}));
  legend.forEach(({x: from, row}, i) => {
    const y = head + 8 + 18 * row, isCross = rows[0].cross !== undefined && i === keys.length - 1;
    chart.append(isCross ? cross(from + 8, y) : svg('rect', {x: from + 2, y: y - 6, width: 12, height: 12, ...filled(palette[i])}), words(from + 20, y + 4, keys[i]));
  });
  for (const v of roundTicks(0, most, Math.max(2, Math.min(5, Math.floor((width - left - right) / 60)))))
    chart.append(svg('line', {x1: x(v), x2: x(v), y1: top, y2: height - 34, class: 'grid'}), words(x(v), height - 20, String(v), {'text-anchor': 'middle', class: 'soft'}));
  rows.forEach((row, r) => {
    const y = top + tall * r + 4, name = words(left - 8, y + 14, shortened(row.name, left - 10), {'text-anchor': 'end'});
    name.append(svg('title', {}, row.name));
    chart.append(name);
    let from = 0;
    row.parts.forEach((part, i) => {
      chart.append(svg('rect', {x: x(from), y, width: Math.max(0, x(from + part) - x(from)), height: tall - 9, ...filled(keys.length ? palette[i] : '#777777')}, svg('title', {}, `${keys[i] ?? row.name}: ${shortNumber(part)} ${unit}`)));
      from += part;
    });
    if (row.cross !== undefined) chart.append(cross(x(row.cross), y + 10));
    chart.append(words(x(Math.max(from, row.cross ?? 0)) + 9, y + 14, row.text, {class: 'soft'}));
  });
  chart.append(centred((left + width - right) / 2, height - 4, unit, width));
  return chart;
}
