// The picture of one histogram in its format's zones, and the table of its rates.
function patterns() {
  const hatch = (id, color, path) => svg('pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse'}, [
    svg('rect', {width: 6, height: 6, fill: color, 'fill-opacity': .28}),
    svg('path', {d: path, stroke: color, 'stroke-width': 1.6})]);
  return svg('defs', {}, [
    hatch('p-lost', 'var(--lost)', 'M-1,1 L1,-1 M0,6 L6,0 M5,7 L7,5'),
    hatch('p-subnormal', 'var(--subnormal)', 'M0,1 L6,1 M0,4 L6,4'),
    hatch('p-edge', 'var(--overflow)', 'M0,0 L6,6 M-1,5 L1,7 M5,-1 L7,1'),
    hatch('p-overflow', 'var(--overflow)', 'M0,0 L6,6 M0,6 L6,0')]);
}

const shortZoneNames = {lost: 'to zero', subnormal: 'subn.', normal: 'normal', overflow: 'over'};

// `ratio`: wanted scale / the scale that the histogram's values carry; `factor`: how the scale is written. Where the values
// have several formats there are no common edges: then the zones are only named.
function drawHistogram(place, histogram, ratio, zones, factor, formats) {
  const shift = Math.log2(ratio), range = formats.length === 1 ? formats[0] : null;
  const width = Math.max(340, Math.min(760, place.clientWidth)), height = 360, left = 46, right = 8, top = 40, bottom = 46, low = -50, high = 22;
  const inside = e => Math.max(low, Math.min(high, e)), edges = range ? [range.tie, range.normal, Math.log2(range.overflow)].map(inside) : [-25, -14, 16];
  const x = e => left + (e - low) / (high - low) * (width - left - right);
  const tallest = Math.max(1e-9, ...histogram[4]) / Math.max(1, zones.finite);
  const peak = [.02, .05, .1, .15, .2, .3, .4, .5, .75, 1].find(p => p >= tallest * 1.04) ?? 1;
  const y = share => height - bottom - share / peak * (height - top - bottom);
  const spoken = zoneKeys.map(key => `${interval(zones[key], zones.finite)} ${zoneNames[key]}`).join(', ');
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Exponent histogram of gradients × ${factor}: ${spoken}`}, patterns());
  zoneKeys.forEach((key, i) => {
    const from = [low, ...edges][i], to = [...edges, high][i];
    if (range && to - from > .5)
      picture.append(svg('rect', {x: x(from), y: top, width: x(to) - x(from), height: height - top - bottom, fill: `var(--${key})`, 'fill-opacity': .1}),
                     svg('rect', {x: x(from) + 1, y: top - 5, width: x(to) - x(from) - 2, height: 4, fill: `var(--${key})`}));
    if (to - from <= 2) return;  // out of sight; the table has it
    // The last zone is too narrow to be centred over.
    const words = to === high ? {x: width - right, 'text-anchor': 'end'} : {x: (x(from) + x(to)) / 2, 'text-anchor': 'middle'};
    const name = width < 460 ? shortZoneNames[key] : zoneNames[key];
    picture.append(svg('text', {...words, y: top - 26, class: 'zone-name'}, name), svg('text', {...words, y: top - 11}, interval(zones[key], zones.finite)));
  });
  for (let i = 0; i <= 4; ++i) {
    const share = peak * i / 4;
    picture.append(svg('line', {x1: left, x2: width - right, y1: y(share), y2: y(share), class: 'grid'}),
                   svg('text', {x: left - 7, y: y(share) + 4, 'text-anchor': 'end', class: 'soft'}, plainPercent(share)));
  }
  let outside = 0;
  histogram[4].forEach((n, i) => {
    if (n === 0) return;
    const a = histogram[3] + i + shift, b = a + 1, share = n / zones.finite;
    if (b <= low || a >= high) { outside += n; return; }
    const [first, last] = range ? zonesOfBin(histogram, histogram[3] + i, ratio, range) : [2, 2], key = zoneKeys[last];
    const fill = key === 'normal' ? 'var(--normal)' : key === 'overflow' && first !== last ? 'url(#p-edge)' : `url(#p-${key})`;
    const from = Math.max(x(a), left), bar = svg('rect', {x: from + .6, y: y(share), width: Math.max(0, Math.min(x(b), x(high)) - from - 1.2), height: height - bottom - y(share),
      fill, stroke: `var(--${key})`, 'stroke-width': 1});
    const end = e => Number.isInteger(e) ? power(e) : (2 ** e).toPrecision(4);
    bar.append(svg('title', {}, `(${end(a)}, ${end(b)}]: ${exact(n)} values, ${percent(share)} %`));
    picture.append(bar);
  });
  for (const edge of range ? edges.filter(edge => edge > low && edge < high) : [])
    picture.append(svg('line', {x1: x(edge), x2: x(edge), y1: top, y2: height - bottom, class: 'axis', 'stroke-dasharray': '3 3'}));
  picture.append(svg('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: 'axis'}));
  // Edges that are powers of two have their place on the axis, round numbers where they leave room.
  const marks = range ? edges.filter(edge => Number.isInteger(edge) && edge > low && edge < high) : [];
  const room = width < 460 ? 8 : 5;
  for (const e of [...marks, ...(width < 460 ? [-44, -34, -24, -14, -4, 6, 16] : [-48, -40, -32, -24, -16, -8, 0, 8, 16]).filter(e => marks.every(edge => Math.abs(edge - e) >= room))])
    picture.append(svg('text', {x: x(e), y: height - bottom + 17, 'text-anchor': 'middle', class: 'soft'}, power(e)));
  picture.append(svg('text', {x: (left + width - right) / 2, y: height - 8, 'text-anchor': 'middle', class: 'soft'},
    (width < 460 ? `gradient × ${factor}` : `magnitude of gradient × ${factor}; height: share of the non-zero values`) +
    (outside > 0 ? ` (${percent(outside / zones.finite)} % outside)` : '')));
  place.replaceChildren(picture);
}

// `casts`: what the recorded cast did, at the scale that it had; null at other scales, and where nothing was cast.
function fillRates(table, zones, factor, casts) {
  const whole = n => zones.total ? percent(n / zones.total) + ' % of all' : '–';
  const row = (key, name, value, count) => `<tr data-zone="${key}" data-lower="${count[0]}" data-upper="${count[1]}"><td>` +
    (key in zoneNames ? `<span class="key" style="background:var(--${key})"></span>` : '') + `${name}</td><td>${value}</td><td title="${spelled(count)}">${short(count)}</td></tr>`;
  table.innerHTML = `<thead><tr><th>at ${factor}</th><th>share</th><th>values</th></tr></thead><tbody>` +
    zoneKeys.map(key => row(key, zoneNames[key], interval(zones[key], zones.finite), zones[key])).join('') +
    (casts ? [['made-zero', 'recorded: made zero', casts[1]], ['made-infinite', 'recorded: made Inf or NaN', casts[2]]]
      .map(([key, name, n]) => row(key, name, casts[0] > 0 ? percent(n / casts[0]) + ' %' : '–', [n, n])).join('') : '') +
    [['finite', 'finite, not zero'], ['zero', 'exact zeros (not underflow)'], ['infinite', 'Inf when recorded'], ['nan', 'NaN when recorded']]
      .filter(([key]) => zones[key] > 0 || key === 'finite' || key === 'zero')
      .map(([key, name]) => row(key, name, whole(zones[key]), [zones[key], zones[key]])).join('') + '</tbody>';
}
