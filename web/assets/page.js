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

// The browser takes its time to load the rules of a language, so that waits until a number changes.
const { lang } = document.documentElement;
let formatter;
let plural;
const format = (n) => (formatter ??= new Intl.NumberFormat(lang)).format(n);

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
    $('.n', link).textContent = format(count);
    $('.vh', link).textContent = say('likes', count) + (liked ? `, ${words.mine[0]}` : '');
  }
}

// A click while a request is under way is a new wish, which is sent after it.
async function like(form) {
  const wish = $('[name=liked]', form).value === 'true';
  const link = $('.count', form);
  showLike(form, wish, Number(link.dataset.n) + (wish ? 1 : -1));
  form.dataset.wish = wish;
  if (form.dataset.busy) return;
  form.dataset.busy = 1;
  $('.wrong', form)?.remove();
  let known = { liked: !wish, likes_count: Number(link.dataset.n) + (wish ? -1 : 1) };
  try {
    while (String(known.liked) !== form.dataset.wish) {
      const response = await fetch(form.dataset.like, { method: form.dataset.wish === 'true' ? 'PUT' : 'DELETE' });
      if (!response.ok) {
        const wait = Number(response.headers.get('Retry-After'));
        if (wait) {
          const button = $('button', form);
          button.disabled = true;
          setTimeout(() => { button.disabled = false; }, wait * 1000);
        }
        throw new Error((await problem(response)).detail);
      }
      known = await response.json();
    }
  } catch (error) {
    const note = document.createElement('span');
    note.className = 'wrong';
    note.role = 'alert';
    note.textContent = error.message;
    form.append(note);
  }
  delete form.dataset.busy;
  showLike(form, known.liked, known.likes_count);
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
      body.tags = form.elements.tags.value.split(/[\s,，、]+/).map((t) => t.replace(/^#/, '')).filter(Boolean);
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
      if (!form.elements.draft) { // the text that is sent replaces it
        const key = document.createElement('input');
        key.type = 'hidden';
        key.name = 'draft';
        key.value = draft;
        form.append(key);
      }
      note.textContent = '✓';
    } else {
      note.textContent = (await problem(response)).detail;
    }
  };
  form.addEventListener('input', () => {
    clearTimeout(timer);
    note.textContent = area.value.length > 55000 ? say('room', 60000 - area.value.length) : '';
    timer = setTimeout(() => { saving = save().catch(() => {}); }, 1500);
  });
  const attach = $('[data-image]', form);
  attach.hidden = false;
  attach.addEventListener('click', () => {
    const file = document.createElement('input');
    file.type = 'file';
    file.accept = 'image/jpeg,image/png';
    file.addEventListener('change', () => upload(form, area, file.files[0]));
    file.click();
  });
  area.addEventListener('paste', (e) => {
    const [file] = e.clipboardData.files;
    if (file) {
      e.preventDefault();
      upload(form, area, file);
    }
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
    area.readOnly = true;
    clearTimeout(timer);
    const slow = setTimeout(() => form.classList.add('busy'), 300);
    try {
      await saving;
      const data = new URLSearchParams(new FormData(form));
      const response = await fetch(preview ? '/preview' : form.action, {
        method: 'POST', body: data, headers: { 'X-Requested-With': 'fetch' },
      });
      const key = response.headers.get('X-Next-Key');
      if (key) form.elements.key.value = key;
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
      area.readOnly = false;
      form.classList.remove('busy');
      delete form.dataset.busy;
    }
  });
}

async function upload(form, area, file) {
  const body = new FormData();
  body.set('file', file);
  form.classList.add('busy');
  try {
    const response = await fetch('/v1/images', { method: 'POST', body });
    if (!response.ok) throw new Error((await problem(response)).detail);
    const { url } = await response.json();
    area.setRangeText(`![](${url})\n`, area.selectionStart, area.selectionEnd, 'end');
    area.dispatchEvent(new Event('input', { bubbles: true }));
  } catch (error) {
    fail(form, error.message);
  }
  form.classList.remove('busy');
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
    form.elements.draft?.remove();
    $('[data-saved]', form).textContent = '';
    $('[data-preview]', form).hidden = true;
  }
  if (comments) count('comments', $('.post').dataset.post, Number(comments));
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
  const response = await fetch(link.href, { headers: { 'X-Requested-With': 'fetch' } }).catch(() => ({}));
  if (!response.ok) { location = link.href; return; }
  const place = link.parentElement;
  const box = document.createElement('div');
  box.innerHTML = html(await response.text());
  place.replaceWith(...box.children);
  live();
}

// A number with its word: the page brings the words of its language, in the singular and the plural.
const words = JSON.parse(document.body.dataset.words);
const say = (word, n) => {
  plural ??= new Intl.PluralRules(lang);
  return words[word][plural.select(n) === 'one' ? 0 : 1].replace('%d', format(n));
};

function count(kind, id, n) {
  for (const e of $$(`[data-${kind}="${id}"]`)) {
    if (e.textContent.replace(/\D/g, '') !== String(n)) e.textContent = say(e.dataset.word, n);
  }
}

// One stream a browser: the tab that holds the lock reads it, and passes the events on to the others.
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
    count('remaining', data.id, data.remaining);
  }
  if (event === 'counts') {
    const place = $(`[data-count="${data.type}s-${data.id}"]`);
    if (place && !place.parentElement.dataset.busy && Number(place.dataset.n) !== data.likes_count) {
      showLike(place.parentElement, $('button', place.parentElement).ariaPressed === 'true', data.likes_count);
    }
  }
  if (event === 'thread' && String(data.id) === $('.post')?.dataset.post) {
    const { last } = $('[data-tree]').dataset; // of a page that has all comments
    seen ??= last ? data.comment_ids.filter((c) => c <= Number(last)) : data.comment_ids;
    announce(data.comment_ids.filter((c) => !seen.includes(c) && !document.getElementById(`comment-${c}`)), 'fresh');
  }
  const follows = new URLSearchParams(document.body.dataset.live);
  const ours = data.tag ? follows.get('tags')?.toLowerCase() === data.tag : follows.has('new_posts');
  if (event === 'posts' && ours) {
    seen ??= data.post_ids;
    announce(data.post_ids.filter((p) => !seen.includes(p)), 'posts');
  }
  if (event === 'notifications' && String(data.id) === me) {
    const bell = $('[data-bell]');
    if (bell) {
      bell.textContent = data.unread_count;
      bell.hidden = !data.unread_count;
    }
  }
}

// New comments and posts are announced, and do not move what is being read.
let seen;
function announce(ids, word) {
  const bar = $('[data-new]');
  if (!bar) return;
  bar.hidden = !ids.length;
  if (ids.length) $('a', bar).textContent = say(word, ids.length);
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
let followed = '';
let stream; // its id, with which its targets can be changed
let failures = 0;
async function connect() {
  if (!leads) return;
  const sets = {};
  for (const want of wanted.values()) {
    for (const [name, ids] of new URLSearchParams(want)) {
      sets[name] ??= new Set();
      for (const one of ids.split(',')) sets[name].add(one);
    }
  }
  let room = 500; // of the API's 512 targets a stream
  const params = new URLSearchParams();
  const body = {};
  for (const [name, set] of Object.entries(sets)) {
    const ids = [...set].slice(0, room);
    room -= ids.length;
    if (!ids.length) continue;
    params.set(name, ids.join(','));
    body[name] = name === 'new_posts' ? true : ids.map((one) => (name === 'tags' ? one : Number(one)));
  }
  if (me && wanted.size && failures < 3) { // the session may have ended
    params.set('notifications', 'true');
    body.notifications = true;
  }
  const next = params.toString();
  if (next === followed) return;
  followed = next;
  if (source && stream && next) {
    const response = await fetch(`/v1/streams/${stream}`, {
      method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
    }).catch(() => ({}));
    if (response.ok) return;
  }
  source?.close();
  stream = null;
  source = next ? new EventSource(`/v1/stream?${next}`) : null;
  source?.addEventListener('error', ({ target }) => {
    if (target.readyState !== EventSource.CLOSED || target !== source) return; // the browser tries again by itself
    source = null;
    stream = null;
    followed = '';
    failures += 1;
    setTimeout(connect, Math.min(60, 2 ** failures) * 1000);
  });
  for (const event of ['stream', 'counts', 'notifications', 'thread', 'posts']) {
    source?.addEventListener(event, (e) => {
      const data = JSON.parse(e.data);
      if (event === 'stream') {
        if (stream) { // the browser has connected again, with the targets of the first time
          followed = '';
          follow(id, mine());
        }
        stream = data.id;
        failures = 0;
      }
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
const opens = 'h2 a, .who > a'; // what an item is opened with
document.addEventListener('keydown', (e) => {
  if (e.key === 'Escape') for (const open of $$('.menu[open]')) open.open = false;
  if (off.checked || e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, textarea, select, dialog')) return;
  const items = $$('.row, .comment');
  const item = items[at];
  if (e.key === 'j' || e.key === 'k') {
    at = Math.max(0, Math.min(items.length - 1, at + (e.key === 'j' ? 1 : -1)));
    items[at]?.scrollIntoView({ block: 'nearest' });
    $(opens, items[at] ?? document)?.focus({ preventScroll: true });
  } else if (e.key === 'o') $(opens, item ?? document)?.click();
  else if (e.key === 'l') $('.like button', item ?? $('.post') ?? document)?.click();
  else if (e.key === 'r') {
    const link = item && $('[data-reply]', item);
    if (link) link.click();
    else $('.composer textarea')?.focus();
  }
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
addEventListener('pageshow', (e) => { if (e.persisted) { followed = ''; stream = null; live(); } });
if (navigator.locks && channel) navigator.locks.request('likewise-stream', () => { lead(); return new Promise(() => {}); });
else lead();
live();
