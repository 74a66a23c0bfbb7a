// The table of a histogram's rates.
// `casts`: what the recorded cast did, at the scale that it had; null at other scales, and where nothing was cast.
const zoneTips = {
  lost: 'Too small: rounding to nearest even makes these zero.', subnormal: 'Kept with fewer significant bits than the format has.', normal: 'Kept with all significant bits of the format.',
  overflow: 'Too large for the format: infinite, or NaN in E4M3, which has no infinity.', 'made-zero': 'Counted on both sides of the cast that the run made, whatever its rounding.', 'made-infinite': 'Counted on both sides of the cast that the run made.',
  finite: 'What the zones are shares of.', zero: 'By a ReLU, say, or because an earlier cast flushed it: no underflow of this cast.', infinite: 'Infinite before the cast.', nan: 'No number before the cast.'};
function fillRates(table, zones, factor, casts, names = zoneNames) {
  const whole = n => zones.total ? percent(n / zones.total) + ' % of all' : '–';
  const explained = (tip, textContent) => {
    const node = element('span', {className: 'tip', tabIndex: 0, textContent});
    node.dataset.tip = tip;
    return node;
  };
  const swatch = key => {
    const node = element('span', {className: 'key'});
    node.style.background = `var(--${key})`;
    return node;
  };
  const row = (key, name, value, count) => {
    const node = element('tr', {}, [
      element('td', {}, [...key in zoneNames ? [swatch(key)] : [], explained(zoneTips[key], name)]), element('td', {textContent: value}),
      element('td', {}, explained(`${spelled(count)} values`, short(count)))]);
    Object.assign(node.dataset, {zone: key, lower: count[0], upper: count[1]});
    return node;
  };
  const heading = children => element('th', {scope: 'col'}, children);
  table.replaceChildren(
    element('caption', {className: 'unseen', textContent: `Zones at ${factor}`}),
    element('thead', {}, element('tr', {}, [
      heading(`at ${factor}`), heading(explained('Of the finite values that are not zero, of what is chosen above.', 'share')), heading('values')])),
    element('tbody', {}, [
      ...zoneKeys.map(key => row(key, names[key], interval(zones[key], zones.finite), zones[key])),
      ...(casts ? [['made-zero', 'recorded: made zero', casts[1]], ['made-infinite', 'recorded: made Inf or NaN', casts[2]]] : [])
        .map(([key, name, n]) => row(key, name, casts[0] > 0 ? percent(n / casts[0]) + ' %' : '–', [n, n])),
      ...[['finite', 'finite, not zero'], ['zero', 'already zero before this cast'], ['infinite', 'Inf when recorded'], ['nan', 'NaN when recorded']]
        .filter(([key]) => zones[key] > 0 || key === 'finite' || key === 'zero')
        .map(([key, name]) => row(key, name, whole(zones[key]), [zones[key], zones[key]]))]));
}
