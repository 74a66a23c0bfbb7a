// A vector as bars that can be drawn: the height is the power of two, above the middle line positive, below it negative.
const pads = {a: {chosen: 0}, b: {chosen: 0}};

const powersOf = name => drawnPowers[formatsOf(state.operands)[name === 'a' ? 0 : 1]] ?? drawnPowers.f16;
// 0 is zero, n the n-th positive power of two, -n the n-th negative one. Values have seven digits: a power may be a little less.
const levelOf = (value, [low, high]) => value === 0 ? 0 : Math.sign(value) * Math.max(1, Math.min(high - low + 1, Math.floor(Math.log2(Math.abs(value)) + 1e-6) - low + 1));
const numberOf = (level, [low]) => level === 0 ? '0' : `${level < 0 ? '-' : ''}${Math.abs(level) === 1 - low ? '1' : `2^${low + Math.abs(level) - 1}`}`;

function drawPad(name) {
  const place = at('pad-' + name), values = typed[name].map(Number), range = powersOf(name), top = range[1] - range[0] + 1;
  const pad = pads[name], width = 100 / Math.max(1, values.length);
  pad.chosen = Math.max(0, Math.min(values.length - 1, pad.chosen));
  const picture = svg('svg', {viewBox: `0 -52 100 104`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  if (place === document.activeElement) picture.append(svg('rect', {x: pad.chosen * width, width, y: -52, height: 104, class: 'chosen'}));
  picture.append(svg('line', {x1: 0, x2: 100, y1: 0, y2: 0, class: 'axis', 'vector-effect': 'non-scaling-stroke'}));
  values.forEach((value, i) => {
    const level = Number.isFinite(value) ? levelOf(value, range) : top * Math.sign(value) || 0, height = 50 * Math.abs(level) / top;
    if (level !== 0) picture.append(svg('rect', {x: i * width + width * .12, width: width * .76, y: level > 0 ? -height : 0, height, class: 'stroke'}));
  });
  place.replaceChildren(picture);
  const level = levelOf(values[pad.chosen] || 0, range);
  Object.assign(place, {ariaValueMin: String(-top), ariaValueMax: String(top), ariaValueNow: String(level), ariaValueText: `${name}[${pad.chosen}] = ${typed[name][pad.chosen] ?? 'nothing'}`});
}

function setElement(name, index, level) {
  const list = tokens(state[name]), range = powersOf(name), top = range[1] - range[0] + 1;
  if (index < 0 || index >= list.length) return;
  pads[name].chosen = index;
  list[index] = numberOf(Math.max(-top, Math.min(top, level)), range);
  change({[name]: list.join(' ')});
}

function startPad(name) {
  const place = at('pad-' + name);
  for (const [key, value] of Object.entries({role: 'slider', tabindex: 0, 'aria-label': `Draw ${name}: left and right choose an element, up and down its power of two`, 'aria-orientation': 'vertical'})) place.setAttribute(key, value);
  const drawAt = event => {
    const box = place.getBoundingClientRect(), range = powersOf(name), count = tokens(state[name]).length;
    const part = (event.clientY - box.top) / box.height, level = Math.round((.5 - part) * 104 / 50 * (range[1] - range[0] + 1));
    setElement(name, Math.min(count - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * count))), level);
  };
  place.addEventListener('pointerdown', event => { place.setPointerCapture(event.pointerId); place.focus(); drawAt(event); event.preventDefault(); });
  place.addEventListener('pointermove', event => { if (place.hasPointerCapture(event.pointerId)) drawAt(event); });
  for (const type of ['focus', 'blur']) place.addEventListener(type, () => drawPad(name));
  place.addEventListener('keydown', event => {
    const pad = pads[name], level = levelOf(Number(typed[name][pad.chosen]) || 0, powersOf(name));
    const moves = {ArrowLeft: -1, ArrowRight: 1}, changes = {ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5};
    if (event.key in moves) { pad.chosen += moves[event.key]; drawPad(name); }
    else if (event.key in changes) setElement(name, pad.chosen, level + changes[event.key]);
    else if (event.key === 'Home' || event.key === 'End') { pad.chosen = event.key === 'Home' ? 0 : typed[name].length - 1; drawPad(name); }
    else return;
    event.preventDefault();
  });
}
