// Explanations: whatever has data-tip shows it on hover and on focus; Escape puts it away.
function showTip(text, left, top) {
  const tip = at('tip');
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = Math.max(8, Math.min(left, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = Math.max(8, Math.min(top, innerHeight - tip.offsetHeight - 8)) + 'px';
}
const hideTip = () => { at('tip').hidden = true; };

function startTips() {
  let explained = null;
  const explain = target => {
    if (explained === target || !target) return;
    explained?.removeAttribute('aria-describedby');
    explained = target;
    const box = target.getBoundingClientRect();
    target.setAttribute('aria-describedby', 'tip');
    showTip(target.dataset.tip, box.left, box.bottom + 6);
    const tip = at('tip').getBoundingClientRect();
    if (tip.top < box.bottom && tip.bottom > box.top) showTip(target.dataset.tip, box.left, box.top - tip.height - 6);
  };
  const leave = () => {
    if (!explained) return;
    explained.removeAttribute('aria-describedby');
    explained = null;
    hideTip();
  };
  const target = event => event.target.closest?.('[data-tip]');
  document.addEventListener('focusin', event => target(event) ? explain(target(event)) : leave());
  document.addEventListener('focusout', leave);
  document.addEventListener('pointerover', event => {
    if (target(event)) explain(target(event));
    else if (event.target !== at('tip') && explained && !explained.contains(document.activeElement)) leave();
  });
  document.addEventListener('keydown', event => { if (event.key === 'Escape') { leave(); hideTip(); } });
  window.addEventListener('scroll', () => { if (explained && !explained.contains(document.activeElement)) leave(); }, {passive: true});
}
