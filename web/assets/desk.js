// The desks by keyboard, and the progress of what runs. Everything works without this module.

const $ = (s, root = document) => root.querySelector(s);
const $$ = (s, root = document) => [...root.querySelectorAll(s)];
const off = () => {
  try {
    return localStorage.getItem('keys') === 'off';
  } catch {
    return false; // the browser keeps nothing
  }
};

const items = $$('[data-item]');
let at = items.findIndex((item) => $('[aria-current]', item));

function move(by) {
  at = Math.max(0, Math.min(items.length - 1, at + by));
  const item = items[at];
  item.scrollIntoView({ block: 'nearest' });
  $('a', item)?.focus({ preventScroll: true });
}

// A key acts on the case that is open. If the cursor is on another, the key opens that one first.
function press(key) {
  const link = items[at] && $('a', items[at]);
  if (link && !link.hasAttribute('aria-current')) return link.click();
  const button = $(`[data-key="${key}"]`);
  const missing = button && $$('[required]', button.form).find((field) => !field.value);
  return missing ? missing.focus() : button?.click();
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  x: () => items[at] && $('[type=checkbox]', items[at])?.click(),
};
if ($('[data-key]')) {
  keys.c = () => press('c');
  keys.d = () => press('d');
}

// On the window and before the forum's own shortcuts, which have other meanings for these keys.
addEventListener('keydown', (e) => {
  if (!items.length || !keys[e.key] || off() || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target.closest('input:not([type=checkbox]), textarea, select, dialog')) return;
  e.preventDefault();
  e.stopPropagation();
  keys[e.key]();
}, true);

for (const hint of $$('[data-hint]')) hint.hidden = off();

// A note is about what was just done: reloading the page, or coming back to it, does not show it again.
if ($('[data-did]')) {
  const here = new URL(location);
  for (const name of ['did', 'of', 'n', 't', 'was', 'sum']) here.searchParams.delete(name);
  history.replaceState(history.state, '', here);
}

// What runs shows its numbers, and its page once more when it has ended.
const number = new Intl.NumberFormat(document.documentElement.lang);
const ended = (now) => ('state' in now ? now.finished_at : now.done_at);

async function poll(place) {
  const response = await fetch(place.dataset.poll).catch(() => null);
  const now = response?.ok && await response.json();
  if (now) {
    for (const cell of $$('[data-field]', place)) cell.textContent = number.format(now[cell.dataset.field]);
    if (ended(now)) return location.reload();
  }
  return setTimeout(poll, 2000, place);
}
for (const place of $$('[data-poll]')) {
  if (!['done', 'deleted', 'undone'].includes(place.dataset.state)) setTimeout(poll, 1000, place);
}
