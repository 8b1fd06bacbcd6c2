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

// A number with its word: the page brings the words of its language, in the singular and the plural.
const words = JSON.parse(document.body.dataset.words);
const say = (word, n) => {
  plural ??= new Intl.PluralRules(lang);
  return words[word][plural.select(n) === 'one' ? 0 : 1].replace('%d', format(n));
};

// A request throws its failure: what the answer says, in the language of the page.
async function request(url, options) {
  let response;
  try {
    response = await fetch(url, { signal: AbortSignal.timeout(30000), ...options });
  } catch {
    throw { detail: words.away };
  }
  if (response.ok) return response;
  const { status, headers } = response;
  const problem = await response.json().catch(() => ({}));
  if (status >= 500) delete problem.detail;
  throw {
    detail: words.away, ...problem, status, wait: Number(headers.get('Retry-After')), key: headers.get('X-Next-Key'),
  };
}

const faults = (e) => (e.errors ?? []).map(({ field, message }) => `${field} ${message}`);

function make(tag, name, text, ...children) {
  const e = document.createElement(tag);
  e.className = name;
  e.append(text, ...children);
  return e;
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
    $('.vh', link).textContent = say('likes', count) + (liked ? `, ${words.mine}` : '');
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
      const method = form.dataset.wish === 'true' ? 'PUT' : 'DELETE';
      known = await (await request(form.dataset.like, { method })).json();
    }
  } catch (e) {
    const note = make('span', 'wrong', e.detail ?? words.away);
    note.role = 'alert';
    form.append(note);
    if (e.wait) {
      const button = $('button', form);
      button.disabled = true;
      setTimeout(() => { button.disabled = false; }, e.wait * 1000);
    }
  }
  delete form.dataset.busy;
  showLike(form, known.liked, known.likes_count);
}

// Composers: preview in place, drafts saved, Ctrl+Enter sends, and what was sent appears in the thread.
const limit = 60000; // bytes of a text
const size = (text) => new TextEncoder().encode(text).length;
const light = (body) => ({ body, keepalive: size(String(body)) < limit }); // such a request outlives its page
const random = (n) => crypto.getRandomValues(new Uint32Array(n)).join('-'); // unlike randomUUID, also without TLS

function compose(form) {
  const fields = form.elements;
  const area = fields.content;
  const note = $('[data-saved]', form);
  const first = form.dataset.draft;
  let draft = first;
  let version = Number(form.dataset.version); // of the draft; -1 without one
  const typed = () => JSON.stringify([fields.title?.value, area.value, fields.tags?.value]);
  let saved = $('.problem', form) ? '' : typed();
  let saving;
  let timer;
  let failures = 0;
  let apart; // another draft has the key of this one
  let tried; // a draft of which nobody knows whether it was saved
  let unclear; // a text of which nobody knows whether it has arrived

  const set = (name, value) => {
    if (!fields[name]) {
      const field = document.createElement('input');
      field.type = 'hidden';
      field.name = name;
      form.append(field);
    }
    fields[name].value = value;
  };
  const save = async () => {
    clearTimeout(timer);
    const now = typed();
    if (now === saved || form.dataset.busy || !form.isConnected || size(area.value) > limit) return;
    const body = { content: area.value };
    if (fields.title) {
      body.title = fields.title.value;
      body.tags = fields.tags.value.split(/[\s,，、]+/).map((t) => t.replace(/^#/, '')).filter(Boolean);
    }
    const post = form.action.match(/posts\/(\d+)\/comments$/);
    if (post) body.post_id = Number(post[1]);
    if (fields.parent_id) body.parent_id = Number(fields.parent_id.value);
    const url = `/v1/me/drafts/${draft}`;
    const headers = { 'Content-Type': 'application/json' };
    if (version >= 0) headers['If-Match'] = `"v${version}"`;
    try {
      ({ version } = await (await request(url, { method: 'PUT', headers, ...light(JSON.stringify(body)) })).json());
      saved = now;
      failures = 0;
      set('draft', draft); // the text that is sent replaces it
      set('draft_version', version);
      if (!$('[data-tree]')) history.replaceState(null, '', `?draft=${draft}`);
      note.textContent = apart ? words.apart : words.saved;
    } catch (error) {
      let e = error;
      let soon = false;
      if (e.status === 412 || e.status === 428) {
        try {
          const there = await (await request(url)).json();
          soon = true;
          if ([body, tried].some((b) => b?.content === there.content && (b.title ?? '').trim() === there.title)) {
            version = there.version; // an earlier request has saved it, and its answer was lost
          } else {
            draft = `${first}-${random(1)}`;
            version = -1;
            apart = true;
          }
        } catch (other) {
          e = other;
        }
      }
      if (e.status === 404) { // deleted meanwhile
        version = -1;
        soon = true;
      }
      if (!(e.status < 500)) tried = body;
      failures += 1;
      if (soon && failures < 4) return save();
      note.textContent = [e.detail, ...faults(e)].join(' ');
      if (soon || e.status === 429 || !(e.status < 500)) {
        timer = setTimeout(run, (e.wait || Math.min(60, 2 ** failures)) * 1000);
      }
    }
    return undefined;
  };
  const run = () => { saving = Promise.resolve(saving).then(save); };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(run, 1500);
  };
  if (!saved) later();
  form.addEventListener('input', () => {
    const room = limit - size(area.value);
    note.textContent = '';
    if (room < 5000) note.textContent = room < 0 ? say('over', -room) : say('room', room);
    later();
  });
  addEventListener('pagehide', run);
  document.addEventListener('visibilitychange', () => document.hidden && run());
  addEventListener('beforeunload', (e) => { if (failures && !form.dataset.busy && typed() !== saved) e.preventDefault(); });

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
    const act = e.submitter?.value;
    const preview = act === 'preview';
    if (form.dataset.busy) return e.preventDefault();
    form.dataset.busy = 1;
    clearTimeout(timer);
    if (act === 'discard') return undefined;
    e.preventDefault();
    const slow = setTimeout(() => form.classList.add('busy'), 300);
    let data;
    let leaves;
    for (const field of fields) field.readOnly = true;
    try {
      await saving;
      data = new URLSearchParams(new FormData(form));
      // The same text is sent as the same request, so that it is carried out once.
      if (['title', 'content', 'tags'].every((name) => unclear?.get(name) === data.get(name))) data = unclear;
      const response = await request(preview ? '/preview' : form.action, {
        method: 'POST', headers: { 'X-Requested-With': 'fetch' }, ...light(data),
      });
      const text = await response.text();
      $('.problem', form)?.remove();
      if (data === unclear && version >= 0) { // the draft was saved after what has arrived
        fetch(`/v1/me/drafts/${draft}`, { method: 'DELETE', keepalive: true }).catch(() => {});
      }
      if (preview) {
        const place = $('[data-preview]', form);
        place.innerHTML = html(text);
        place.hidden = false;
      } else if ($('[data-tree]')) {
        area.value = '';
        saved = typed();
        draft = first;
        version = -1;
        apart = unclear = null;
        fields.key.value = random(4);
        fields.draft?.remove();
        note.textContent = '';
        $('[data-preview]', form).hidden = true;
        posted(form, text, response.headers.get('X-Comments'));
      } else {
        leaves = true;
        location = response.headers.get('Location');
      }
    } catch (failure) {
      if (!preview) {
        unclear = failure.status < 500 && failure.code !== 'key_in_use' ? null : data;
        if (failure.key) fields.key.value = failure.key;
        leaves = failure.status === 401 || failure.status === 412; // a page asks to sign in, or shows both versions
      }
      if (leaves) form.submit();
      else fail(form, failure);
    } finally {
      clearTimeout(slow);
      for (const field of fields) field.readOnly = false;
      form.classList.remove('busy');
      if (!leaves) {
        delete form.dataset.busy;
        if (typed() !== saved) later();
      }
    }
    return undefined;
  });
}

async function upload(form, area, file) {
  const body = new FormData();
  body.set('file', file);
  form.classList.add('busy');
  try {
    const { url } = await (await request('/v1/images', { method: 'POST', body, signal: null })).json();
    area.setRangeText(`![](${url})\n`, area.selectionStart, area.selectionEnd, 'end');
    area.dispatchEvent(new Event('input', { bubbles: true }));
  } catch (e) {
    fail(form, e);
  }
  form.classList.remove('busy');
}

function fail(form, e) {
  $('.problem', form)?.remove();
  const box = make('div', 'problem', make('p', '', e.detail ?? words.away));
  box.role = 'alert';
  const list = faults(e).map((text) => make('li', '', text));
  if (list.length) box.append(make('ul', '', ...list));
  if (e.request_id) box.append(make('p', 'quiet', `${words.request} `, make('code', '', e.request_id)));
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
      replies = make('div', 'replies', '');
      details.append(replies);
    }
    replies.append(made);
    form.remove();
  } else {
    $('[data-tree]').append(made);
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
  const response = await fetch(link.href).catch(() => ({}));
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

function count(kind, id, n) {
  for (const e of $$(`[data-${kind}="${id}"]`)) {
    if (e.textContent.replace(/\D/g, '') !== String(n)) e.textContent = say(e.dataset.word, n);
  }
}

// One stream a browser: of the visible tabs, the oldest reads it, and passes the events on to the others. Locks would
// need TLS.
const channel = 'BroadcastChannel' in window ? new BroadcastChannel('likewise') : null;
const id = Date.now().toString(36) + random(1);
const tabs = new Map(); // the visible ones, with what each follows, and when it last said so
const beat = 5000; // milliseconds after which each says so again
let source;

// null is said of a hidden tab.
function mine() {
  if (document.hidden) return null;
  const params = new URLSearchParams(document.body.dataset.live ?? '');
  const comments = $$('[data-comment]').map((e) => e.dataset.comment);
  if (comments.length) params.set('comments', comments.slice(0, 200).join(','));
  if (me) params.set('notifications', 'true');
  return params.toString();
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
      const n = data.unread_count;
      bell.textContent = n;
      bell.hidden = !n;
      bell.parentElement.ariaLabel = words.bell + (n ? `: ${say('unread', n)}` : '');
    }
  }
}

// New comments and posts are announced, and do not move what is being read.
let seen;
function announce(ids, word) {
  const link = $('[data-new] a');
  if (!link) return;
  link.hidden = !ids.length;
  link.textContent = ids.length ? say(word, ids.length) : '';
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
  if (want === null) tabs.delete(tab);
  else tabs.set(tab, { want, at: Date.now() });
  clearTimeout(timer);
  timer = setTimeout(connect, 200);
}

let followed = '';
let stream; // its id, with which its targets can be changed
let failures = 0;
async function connect() {
  const sets = {};
  for (const [tab, { want, at }] of tabs) {
    if (Date.now() - at > 3 * beat) { // it has crashed
      tabs.delete(tab);
      continue;
    }
    for (const [name, ids] of new URLSearchParams(want)) {
      sets[name] ??= new Set();
      for (const one of ids.split(',')) sets[name].add(one);
    }
  }
  let room = 500; // of the API's 512 targets a stream
  const params = new URLSearchParams();
  const body = {};
  const leads = [...tabs.keys()].sort()[0] === id;
  for (const name of leads ? ['new_posts', 'notifications', 'threads', 'drops', 'tags', 'posts', 'comments'] : []) {
    const ids = [...sets[name] ?? []].slice(0, room);
    const flag = ids[0] === 'true';
    if (!ids.length || (name === 'notifications' && failures > 2)) continue; // the session may have ended
    if (!flag) room -= ids.length;
    params.set(name, ids.join(','));
    body[name] = flag || ids.map((one) => (name === 'tags' ? one : Number(one)));
  }
  const next = params.toString().replaceAll('%2C', ','); // a third of the length: the API reads 8 KiB of a header
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
addEventListener('pagehide', () => { tell({ id, want: null }); source?.close(); });
addEventListener('pageshow', (e) => { if (e.persisted) { followed = ''; stream = null; live(); } });
tell({ ask: true });
live();
setInterval(live, beat);
