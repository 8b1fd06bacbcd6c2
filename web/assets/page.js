// Everything works without this module. It saves the way to another page and back.

const trusted = window.trustedTypes?.createPolicy('likewise', { createHTML: (s) => s });
const html = (s) => (trusted ? trusted.createHTML(s) : s);
const $ = (s, root = document) => root.querySelector(s);
const $$ = (s, root = document) => [...root.querySelectorAll(s)];
const me = document.body.dataset.me;
const stored = (name, value) => {
  try {
    return value === undefined ? localStorage.getItem(name) : localStorage.setItem(name, value);
  } catch {
    return null; // the browser keeps nothing
  }
};

const number = new Intl.NumberFormat(document.documentElement.lang);

async function problem(response) {
  try {
    return await response.json();
  } catch {
    return { status: response.status, detail: response.statusText };
  }
}

// Likes: the heart fills at once, and the number is that of the answer. A failure restores both.
function showLike(form, liked, count) {
  const button = $('button', form);
  button.setAttribute('aria-pressed', liked);
  $('[name=liked]', form).value = !liked;
  if (count !== undefined) {
    const link = $('.count', form);
    link.dataset.n = count;
    $('.n', link).textContent = number.format(count);
  }
}

async function like(form) {
  if (!me || form.dataset.busy) return form.dataset.busy ? undefined : form.submit();
  const liked = $('[name=liked]', form).value === 'true';
  const before = Number($('.count', form).dataset.n);
  $('.wrong', form)?.remove();
  form.dataset.busy = 1;
  showLike(form, liked, before + (liked ? 1 : -1));
  let error;
  try {
    const response = await fetch(form.dataset.like, { method: liked ? 'PUT' : 'DELETE' });
    if (response.ok) {
      const now = await response.json();
      showLike(form, now.liked, now.likes_count);
    } else {
      error = (await problem(response)).detail;
      const wait = Number(response.headers.get('Retry-After'));
      if (wait) {
        const button = $('button', form);
        button.disabled = true;
        setTimeout(() => { button.disabled = false; }, wait * 1000);
      }
    }
  } catch (e) {
    error = e.message;
  }
  delete form.dataset.busy;
  if (error) {
    showLike(form, !liked, before);
    const note = document.createElement('span');
    note.className = 'wrong';
    note.role = 'alert';
    note.textContent = error;
    form.append(note);
  }
}

// Composers: preview in place, drafts saved, Ctrl+Enter sends, and what was sent appears in the thread.
function compose(form) {
  const area = $('textarea', form);
  const note = $('[data-saved]', form);
  const { draft } = form.dataset;
  let timer;
  let saving;
  let saved = area.value;
  const save = async () => {
    if (!draft || area.value === saved || form.dataset.busy) return;
    const text = area.value;
    const body = { content: text };
    if (form.elements.title) {
      body.title = form.elements.title.value;
      body.tags = form.elements.tags.value.split(/[\s,#，、]+/).filter(Boolean);
    } else {
      body.post_id = Number(form.action.match(/posts\/(\d+)/)[1]);
      if (form.elements.parent_id) body.parent_id = Number(form.elements.parent_id.value);
    }
    const headers = { 'Content-Type': 'application/json' };
    if (form.dataset.version >= 0) headers['If-Match'] = `"v${form.dataset.version}"`;
    const response = await fetch(`/v1/me/drafts/${draft}`, { method: 'PUT', headers, body: JSON.stringify(body) });
    if (response.ok) {
      form.dataset.version = (await response.json()).version;
      saved = text;
      note.textContent = '✓';
    } else {
      note.textContent = (await problem(response)).detail;
    }
  };
  form.addEventListener('input', () => {
    clearTimeout(timer);
    note.textContent = area.value.length > 55000 ? 60000 - area.value.length : '';
    timer = setTimeout(() => { saving = save().catch(() => {}); }, 1500);
  });
  form.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) form.requestSubmit($('.main', form));
  });
  form.addEventListener('submit', async (e) => {
    const preview = e.submitter?.value === 'preview';
    if (!preview && !$('[data-tree]')) return; // an ordinary form
    if (!preview && form.elements.title) return;
    e.preventDefault();
    if (form.dataset.busy) return;
    form.dataset.busy = 1;
    clearTimeout(timer);
    const slow = setTimeout(() => form.classList.add('busy'), 300);
    try {
      await saving;
      const data = new URLSearchParams(new FormData(form));
      const response = await fetch(preview ? '/preview' : form.action, {
        method: 'POST', body: data, headers: { 'X-Requested-With': 'fetch' },
      });
      if (!response.ok) throw new Error((await problem(response)).detail);
      const text = await response.text();
      $('.problem', form)?.remove();
      if (preview) {
        const place = $('[data-preview]', form);
        place.innerHTML = html(text);
        place.hidden = false;
      } else {
        posted(form, text, response.headers.get('X-Comments'));
      }
    } catch (error) {
      fail(form, error.message);
    } finally {
      clearTimeout(slow);
      form.classList.remove('busy');
      delete form.dataset.busy;
    }
  });
}

function fail(form, text) {
  $('.problem', form)?.remove();
  const box = document.createElement('div');
  box.className = 'problem';
  box.role = 'alert';
  box.textContent = text;
  form.prepend(box);
}

function posted(form, text, comments) {
  const box = document.createElement('div');
  box.innerHTML = html(text);
  const made = box.firstElementChild;
  const parent = form.elements.parent_id && document.getElementById(`comment-${form.elements.parent_id.value}`);
  if (parent) {
    const details = $('details', parent);
    let replies = $(':scope > .replies', details);
    if (!replies) {
      replies = document.createElement('div');
      replies.className = 'replies';
      details.append(replies);
    }
    replies.append(made);
    form.remove();
  } else {
    $('[data-tree]').append(made);
    $('textarea', form).value = '';
    form.elements.key.value = crypto.randomUUID();
    form.dataset.version = -1;
    $('[data-saved]', form).textContent = '';
    $('[data-preview]', form).hidden = true;
  }
  if (comments) count('comments', document.body.querySelector('[data-post]').dataset.post, comments);
  prepare(made);
  made.scrollIntoView({ block: 'nearest' });
  $('a', made).focus({ preventScroll: true });
  live();
}

// The reply form opens in place, with the form's own page as its source.
async function reply(link) {
  const id = link.dataset.reply;
  const comment = document.getElementById(`comment-${id}`);
  const open = $(':scope > details > .composer', comment);
  if (open) return $('textarea', open).focus();
  const response = await fetch(link.href);
  if (!response.ok) { location = link.href; return undefined; }
  const page = new DOMParser().parseFromString(html(await response.text()), 'text/html');
  const form = document.adoptNode($('.composer', page));
  $('.acts', comment).after(form);
  compose(form);
  return $('textarea', form).focus();
}

async function more(link) {
  const response = await fetch(link.href, { headers: { 'X-Requested-With': 'fetch' } });
  if (!response.ok) { location = link.href; return; }
  const place = link.parentElement;
  const box = document.createElement('div');
  box.innerHTML = html(await response.text());
  place.replaceWith(...box.children);
  live();
}

// Counts: the word around a number is that of the language, so only the number is replaced.
function count(kind, id, n) {
  for (const e of $$(`[data-${kind}="${id}"]`)) e.textContent = e.textContent.replace(/[\d.,\s]*\d/, number.format(n));
}

// One stream a browser: the tab that holds the lock reads it, and tells the others.
const channel = 'BroadcastChannel' in window ? new BroadcastChannel('likewise') : null;
let source;
let wanted = new Map(); // what other tabs follow
const id = Math.random().toString(36).slice(2);

function mine() {
  const at = document.body.dataset.live;
  const params = new URLSearchParams(at || '');
  const comments = $$('[data-comment]').map((e) => e.dataset.comment);
  if (comments.length) params.set('comments', comments.slice(0, 200).join(','));
  return document.hidden ? '' : params.toString();
}

function show(event, data) {
  if (event === 'counts' && data.type === 'post') {
    count('comments', data.id, data.comments_count);
    count('likes', `posts-${data.id}`, data.likes_count);
  }
  if (event === 'counts' && data.type === 'drop') {
    const place = $(`[data-drop="${data.id}"] [data-remaining]`);
    if (place) place.textContent = place.textContent.replace(/[\d.,\s]*\d/, number.format(data.remaining));
  }
  if (event === 'counts') {
    const place = $(`[data-count="${data.type}s-${data.id}"]`);
    if (place && !place.parentElement.dataset.busy) {
      place.dataset.n = data.likes_count;
      $('.n', place).textContent = number.format(data.likes_count);
    }
  }
  if (event === 'notifications') {
    const bell = $('[data-bell]');
    if (bell) {
      bell.textContent = data.unread_count;
      bell.hidden = !data.unread_count;
    }
  }
}

function tell(message) {
  channel?.postMessage(message);
}

function live() {
  const want = mine();
  tell({ id, want });
  follow(id, want);
}

let timer;
function follow(tab, want) {
  if (want) wanted.set(tab, want);
  else wanted.delete(tab);
  clearTimeout(timer);
  timer = setTimeout(connect, 200);
}

let leads = false;
let url = '';
function connect() {
  if (!leads) return;
  const sets = {};
  for (const want of wanted.values()) {
    for (const [name, ids] of new URLSearchParams(want)) {
      sets[name] ??= new Set();
      for (const one of ids.split(',')) sets[name].add(one);
    }
  }
  const params = new URLSearchParams();
  let room = 500; // of the API's 512 targets a stream
  for (const [name, ids] of Object.entries(sets)) {
    const list = [...ids].slice(0, room);
    room -= list.length;
    if (list.length) params.set(name, list.join(','));
  }
  if (me && wanted.size) params.set('notifications', 'true');
  const next = params.size ? `/v1/stream?${params}` : '';
  if (next === url) return;
  url = next;
  source?.close();
  source = next ? new EventSource(next) : null;
  for (const event of ['counts', 'notifications', 'comments', 'posts', 'drops']) {
    source?.addEventListener(event, (e) => {
      const data = JSON.parse(e.data);
      show(event, data);
      tell({ event, data });
    });
  }
}

function lead() {
  leads = true;
  tell({ ask: true });
  live();
}

function prepare(root) {
  for (const form of $$('[data-compose]', root)) compose(form);
}

document.addEventListener('submit', (e) => {
  if (e.target.dataset.like && me) {
    e.preventDefault();
    like(e.target);
  }
});
document.addEventListener('click', (e) => {
  if (e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
  const link = e.target.closest('a[data-reply], a[data-more]');
  if (!link) {
    for (const open of $$('.menu[open]')) if (!open.contains(e.target)) open.open = false;
    return;
  }
  e.preventDefault();
  if (link.dataset.reply) reply(link);
  else more(link);
});

// Shortcuts, with a switch.
const off = $('[data-keys-off]');
off.checked = stored('keys') === 'off';
off.addEventListener('change', () => stored('keys', off.checked ? 'off' : 'on'));
const help = $('[data-shortcuts]');
help.hidden = false;
help.addEventListener('click', () => $('#keys').showModal());
let at = -1;
document.addEventListener('keydown', (e) => {
  if (e.key === 'Escape') for (const open of $$('.menu[open]')) open.open = false;
  if (off.checked || e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, textarea, select, dialog')) return;
  const items = $$('.row, .comment');
  const item = items[at];
  if (e.key === 'j' || e.key === 'k') {
    at = Math.max(0, Math.min(items.length - 1, at + (e.key === 'j' ? 1 : -1)));
    items[at]?.scrollIntoView({ block: 'nearest' });
    $('a', items[at] ?? document)?.focus({ preventScroll: true });
  } else if (e.key === 'o') $('a', item ?? document)?.click();
  else if (e.key === 'l') $('.like button', item ?? $('.post') ?? document)?.click();
  else if (e.key === 'r') ($('[data-reply]', item ?? null) ?? $('.composer textarea'))?.[item ? 'click' : 'focus']();
  else if (e.key === '/') $('.find input').focus();
  else if (e.key === '?') $('#keys').showModal();
  else return;
  e.preventDefault();
});

// A link of another page to a comment that this page has no room for.
const wants = location.hash.match(/^#comment-(\d+)$/);
if (wants && !document.getElementById(wants[0].slice(1)) && $('.post')) location.replace(`/comments/${wants[1]}${wants[0]}`);
$('#problem')?.focus();

prepare(document);
channel?.addEventListener('message', ({ data }) => {
  if (data.ask) tell({ id, want: mine() });
  else if (data.id) follow(data.id, data.want);
  else if (data.event) show(data.event, data.data);
});
document.addEventListener('visibilitychange', live);
addEventListener('pagehide', () => { tell({ id, want: '' }); source?.close(); });
addEventListener('pageshow', (e) => { if (e.persisted) { url = ''; live(); } });
if (navigator.locks && channel) navigator.locks.request('likewise-stream', () => { lead(); return new Promise(() => {}); });
else lead();
live();
