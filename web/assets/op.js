// The operators' desk works without this module, which keeps the state fresh and follows a like.

// read returns a page, parsed without being run, or null.
const read = (url) => new Promise((done) => {
  const request = new XMLHttpRequest();
  request.open('GET', url);
  request.responseType = 'document';
  request.timeout = 9000;
  request.onloadend = () => done(request.status === 200 ? request.response : null);
  request.send();
});

// refresh replaces the parts of the page that have changed, except one with the focus.
async function refresh() {
  const page = await read(location.href);
  for (const part of document.querySelectorAll('[data-part]')) {
    const fresh = page?.querySelector(`[data-part="${part.dataset.part}"]`);
    if (fresh && !part.contains(document.activeElement) && !part.isEqualNode(fresh)) part.replaceWith(fresh);
  }
}

const live = document.querySelector('[data-refresh]');
if (live) {
  let busy = false;
  const turn = async () => {
    if (busy || document.hidden) return;
    busy = true;
    await refresh();
    busy = false;
  };
  setInterval(turn, live.dataset.refresh * 1000);
  document.addEventListener('visibilitychange', turn);
}

// A like is followed five times a second, for ten seconds at most. Each look is a bound for the time of every step.
const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });
const look = async (id) => (await fetch(`/v1/admin/pipeline/posts/${id}`)).json();

function show(step, done, from, to) {
  const row = document.querySelector(`[data-step="${step}"]`);
  const state = row.querySelector('[data-done]');
  state.textContent = done ? state.dataset.yes : state.dataset.no;
  row.querySelector('[data-from]').textContent = from ?? '–';
  row.querySelector('[data-to]').textContent = to ?? '–';
}

async function follow(id) {
  const times = { kafka: {}, mysql: {} };
  let position;
  for (let i = 0; i < 50; i += 1) {
    const trace = await look(id);
    position ??= trace.position;
    if (!trace.position || trace.position !== position) return; // another like came after it
    const after = (time) => Math.max(0, Date.parse(time) - Date.parse(trace.accepted_at));
    for (const [step, done] of [['kafka', trace.sent], ['mysql', trace.applied]]) {
      const time = times[step];
      if (!done) time.from = after(trace.at);
      else time.to ??= Math.min(after(trace.at), after(trace.applied_at ?? trace.at));
      if (done && step === 'kafka' && trace.applied_at) time.to = Math.min(time.to, after(trace.applied_at));
      if (time.from > time.to) time.from = time.to; // two clocks
      show(step, done, time.from, time.to);
    }
    if (trace.applied) return;
    await pause(200);
  }
}

document.addEventListener('submit', async (e) => {
  const form = e.target;
  const id = form.dataset.travel;
  if (!id || !document.querySelector('[data-step]')) return; // the page has no table yet: load it
  e.preventDefault();
  const method = e.submitter.value === 'true' ? 'PUT' : 'DELETE';
  e.submitter.disabled = true;
  const status = document.querySelector('[data-answer]');
  const began = performance.now();
  try {
    const answer = await fetch(`/v1/posts/${id}/like`, { method });
    const took = (performance.now() - began).toFixed(1);
    if (!answer.ok) throw new Error((await answer.json()).detail);
    status.textContent = status.dataset.text.replace('…', took);
    show('kafka', false);
    show('mysql', false);
    await follow(id);
  } catch (error) {
    status.textContent = error.message;
  }
  await refresh(); // the form offers the opposite now
  document.querySelector('[data-travel] button').disabled = false;
});
