// A number in every format: what `fp16lab inspect` finds out, as cards.
const roundingNames = {nearest_even: 'nearest even', toward_zero: 'toward zero', upward: 'upward', downward: 'downward', nearest_away: 'nearest away'};
const digits = x => Math.abs(x) >= 1e5 ? x.toExponential(3) : Number(x.toPrecision(4)).toString();
const ulps = error => error === null ? '' : error === 0 ? 'exact' : `${error > 0 ? '+' : ''}${digits(error)} ulp`;

const bitsOf = code => element('p', {class: 'bits'}, [['sign', String(code.sign)], ['exponent', code.exponent], ['fraction', code.fraction]]
  .flatMap(([field, bits]) => [element('span', {class: field, title: field === 'fraction' ? 'fraction of the significand' : field}, bits), ' ']));

// The neighbours on a line, and the number between them. Places are in ulps of the result, for the picture alone.
function neighbourhood(report, result) {
  if (result.error_ulp === null || !report.below || !report.above) return [];
  const ulp = 2 ** report.ulp_exponent, away = code => Number.isFinite(Number(code.value)) ? (Number(code.value) - Number(result.value)) / ulp : null;
  const below = away(report.below) ?? -1, above = away(report.above) ?? 1;
  const exact = Math.max(-1.6, Math.min(1.6, -result.error_ulp)), x = place => 180 + place * 85;
  // Where seven digits do not distinguish neighbours, the last digits of their codes do.
  const wide = report.precision >= 24, side = {[report.below.bits]: 'one below', [report.above.bits]: 'one above'};
  const words = (code, place, column) => [svg('path', {d: `M${x(place)} 22V34L${x(column)} 39`, class: 'place'}),
    svg('text', {x: x(column), y: 51, 'text-anchor': 'middle'}, wide ? side[code.bits] ?? 'the result' : code.short),
    svg('text', {x: x(column), y: 66, 'text-anchor': 'middle', class: 'soft'}, wide ? '…' + code.bits.slice(-4) : code.bits)];
  const picture = svg('svg', {viewBox: '0 0 360 70', role: 'img', 'aria-label': `${result.short} between its neighbours ${report.below.short} and ${report.above.short}` +
    (result.error_ulp === 0 ? '; the number is exact' : `; the number lies ${digits(Math.abs(result.error_ulp))} ulp ${result.error_ulp > 0 ? 'below' : 'above'} it`)},
    [svg('line', {x1: 12, x2: 348, y1: 28, y2: 28, class: 'axis'}), ...words(report.below, Math.max(below, -1.1), -1.1), ...words(result, 0, 0), ...words(report.above, Math.min(above, 1.1), 1.1)]);
  if (result.error_ulp !== 0)
    picture.append(svg('circle', {cx: x(exact), cy: 28, r: 4.5, class: 'number'}), svg('text', {x: x(exact), y: 14, 'text-anchor': 'middle', class: 'number'}, 'your number'));
  return [picture];
}

function roundingsOf(report) {
  const even = report.rounding.nearest_even, rows = Object.entries(report.rounding).map(([mode, code]) =>
    element('tr', {class: mode !== 'nearest_even' && code.bits === even.bits ? 'same' : ''}, [element('th', {class: 'text', scope: 'row'}, roundingNames[mode]),
      element('td', {class: 'word'}, code.bits), element('td', {}, code.short), element('td', {title: code.flags.join(', ')}, ulps(code.error_ulp).replace(' ulp', ''))]));
  const {away, toward_zero: stays, probability_away: chance} = report.stochastic;
  rows.push(element('tr', {}, [element('th', {class: 'text', scope: 'row'}, 'stochastic'), element('td', {colSpan: 3, class: 'text'},
    away.bits === stays.bits ? `always ${away.bits}` : `${away.bits} with probability ${digits(chance)}, else ${stays.bits}`)]));
  return element('table', {class: 'wide'}, [element('caption', {}, 'All roundings; the last column is the error in ulp'), element('tbody', {}, rows)]);
}

function card(report) {
  const result = report.rounding.nearest_even, flags = result.flags.length > 0 ? ` (${result.flags.join(', ')})` : '';
  const fields = `1 + ${report.exponent_bits} + ${report.precision - 1} bits`;
  return element('article', {class: report.precision > 24 ? 'card long' : 'card', 'data-format': report.format}, [
    element('h3', {}, [report.format, element('small', {}, fields)]), bitsOf(result),
    element('p', {class: 'worth'}, [element('b', {title: result.value}, result.short), ` = ${result.bits}, ${result.class}${flags}`]),
    ...(report.ulp_exponent === null ? [] : [element('p', {class: 'soft worth'}, `an ulp is ${power(report.ulp_exponent)}; ${result.error_ulp === 0 ? 'the number is exact here' : `error ${ulps(result.error_ulp)}`}`)]),
    ...neighbourhood(report, result), roundingsOf(report)]);
}

function showNumber() {
  if (at('value').value !== state.value) at('value').value = state.value;
  if (at('own').value !== state.own) at('own').value = state.own;
  const answer = ask('inspect', state.value, state.own);
  say('value-error', answer.error);
  at('formats').classList.toggle('stale', Boolean(answer.error));
  if (answer.error) return;
  const [{exact, nan, formats}] = answer;
  at('exact').textContent = nan ? `A ${nan}.` : `Exactly ${exact}`;
  at('formats').replaceChildren(...formats.map(card));
}

function startNumber() {
  for (const id of ['value', 'own'])
    at(id).addEventListener('input', () => { state[id] = at(id).value; showNumber(); remember(); });
  examples('value-examples', ['0.1', '65519.99', '65520', '2^-25', '0.00006666666', '448', '-1.5e-8', '0x1.8p-3', 'f16:0x0001', 'inf'].map(value => [value, value]),
    value => { state.value = value; showNumber(); remember(); });
}
