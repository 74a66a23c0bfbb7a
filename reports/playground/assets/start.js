// An address may hold anything: an unknown choice becomes the usual one.
function readState() {
  readAddress();
  const within = {operands: operandKinds, accumulator: titleOf, format: gradientFormats};
  for (const [key, known] of Object.entries(within)) if (!Object.hasOwn(known, state[key])) state[key] = initial[key];
  const scale = Math.round(Number(state.scale));
  state.scale = Number.isFinite(scale) ? String(Math.max(-10, Math.min(24, scale))) : initial.scale;
  if (!chosenRow()) Object.assign(state, {tensor: initial.tensor, step: initial.step});
}
function show() {
  showNumber();
  showVectors();
  showGradients();
}

async function start() {
  try {
    askText = await loadLibrary();
  } catch (error) {
    say('failure', `This browser cannot run the library: ${error.message}. Chrome 97, Firefox 102, Safari 16 and what came after them can.`);
    return;
  }
  at('page').hidden = false;
  window.fp16lab = askText;  // for the browser's console: fp16lab('inspect', '0.1', '')
  startNumber();
  startVectors();
  startGradients();
  readState();
  show();
  // Anchors of sections scroll; they are no states.
  for (const link of document.querySelectorAll('nav a'))
    link.addEventListener('click', event => {
      event.preventDefault();
      const heading = document.querySelector(link.hash);
      heading.scrollIntoView();
      heading.focus({preventScroll: true});
    });
  window.addEventListener('hashchange', () => { readState(); show(); });
  at('copy').addEventListener('click', async () => {
    remember();
    try {
      await navigator.clipboard.writeText(location.href);
      at('copied').textContent = 'Copied.';
    } catch {
      at('copied').textContent = 'The address of this page is the link.';
    }
  });
}
start();
