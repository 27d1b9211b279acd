// Runs the LiteRT files of this folder in MediaPipe, and shows their answers.

const SHOWN = 5; // Labels of each file.
const PAUSE = 300; // Milliseconds without a key before calls are timed.
const ROUND = 4; // Milliseconds: browsers' clocks are too coarse for one call.
const ROUNDS = 25;
const LONGEST = 400; // Milliseconds that timing may take.
const STILL = 5000; // Calls after which a clock that shows none stands still.
const WARM_UP = 200; // Milliseconds: browsers compile what runs often.
const COLOURS = ["first", "second"];

const settings = JSON.parse(find("settings").textContent);
const given = new URLSearchParams(location.search).get("text");
const main = document.querySelector("main");
const field = find("text");
let models;
let isReloading = false;
let timer;

find("no-server").remove();
try {
  find("loading").textContent = "Loading the model and MediaPipe …";
  models = await openAll(settings.files);
  for (const model of models) {
    // Labels that are too few show here.
    await orSay(`${model.name} cannot be run.`, warmUp(model));
  }
  start();
} catch (error) {
  tell(error);
  main.removeAttribute("aria-busy");
}
find("loading").textContent = "";

function find(id) {
  return document.getElementById(id);
}

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function tell(error) {
  const problem = find("problem");
  problem.textContent = error ? `${error?.message ?? error}` : "";
  problem.hidden = !error;
}

async function openAll(files) {
  const { FilesetResolver, TextClassifier } = await orSay(
    "MediaPipe cannot be loaded.",
    import("./tasks-text/text_bundle.mjs"),
  );
  const wasm = new URL("tasks-text/wasm", document.baseURI).href;
  const fileset = await FilesetResolver.forTextTasks(wasm);
  const opened = [];
  // One after the other: MediaPipe's loader is a global variable.
  for (const file of files) {
    opened.push(
      await orSay(
        `${file.name} cannot be opened.`,
        open(file, fileset, TextClassifier),
      ),
    );
  }
  return opened;
}

async function orSay(what, promise) {
  try {
    return await promise;
  } catch (error) {
    // MediaPipe throws an event where its runtime is missing.
    const why = error?.message ?? `There is no ${error?.target?.src}.`;
    throw new Error(`${what} ${why}`);
  }
}

async function open({ name, url }, fileset, TextClassifier) {
  // Of a page that was made anew, not what the browser kept of the old one.
  const response = await fetch(url, { cache: "no-cache" });
  if (!response.ok) {
    throw new Error(`The server says ${response.status} of ${url}.`);
  }
  const content = new Uint8Array(await response.arrayBuffer());
  const load = () =>
    TextClassifier.createFromOptions(fileset, {
      baseOptions: { modelAssetBuffer: content.slice() },
    });
  let classifier = await load();
  return {
    name,
    url,
    bytes: content.length,
    // The best first.
    classify: (text) => classifier.classify(text).classifications[0].categories,
    reload: async () => {
      classifier = await load();
    },
  };
}

function start() {
  const body = find("files").tBodies[0];
  models.forEach((model, place) => {
    const link = make("a", {
      href: model.url,
      download: model.name,
      textContent: model.name,
    });
    const mark = make("i", { className: `mark ${COLOURS[place]}` });
    const name = make("th", { scope: "row" }, ...(models[1] ? [mark] : []), link);
    model.time = make("td", { textContent: "–" });
    const size = model.bytes.toLocaleString("en");
    body.append(
      make("tr", {}, name, make("td", { textContent: size }), model.time),
    );
  });
  for (const text of settings.examples) {
    const button = make("button", {
      type: "button",
      dir: "auto",
      textContent: text,
    });
    button.addEventListener("click", () => {
      field.value = text;
      answer();
    });
    find("examples").append(button);
  }
  if (models[1]) {
    const [model, beside] = models;
    const percents = rounded((100 * model.bytes) / beside.bytes);
    find("files-note").textContent =
      `${model.name} has ${percents} % of the bytes of ${beside.name}.`;
  }
  find("examples").hidden = !settings.examples.length;
  find("desk").hidden = false;
  field.addEventListener("input", answer);
  if (given !== null) {
    field.value = given;
  }
  answer();
}

function answer() {
  if (isReloading) {
    return;
  }
  clearTimeout(timer);
  const text = field.value;
  let answers = [];
  tell(null);
  main.setAttribute("aria-busy", "true");
  try {
    answers = text ? models.map((model) => model.classify(text)) : [];
  } catch (error) {
    reload(text, error);
    return;
  }
  showLabels(answers);
  // Said and timed once typing pauses.
  timer = setTimeout(() => finish(text, answers), text ? PAUSE : 0);
}

// After an error MediaPipe answers nothing any more.
async function reload(text, error) {
  console.error(error);
  const length = text.length.toLocaleString("en");
  tell(`MediaPipe gives no answer to this text of ${length} characters.`);
  showLabels([]);
  showTimes(models.map(() => null));
  find("answer").textContent = "";
  isReloading = true;
  for (const model of models) {
    await model.reload();
  }
  isReloading = false;
  main.removeAttribute("aria-busy");
  if (text !== field.value) {
    answer();
  }
}

async function finish(text, answers) {
  const hint = settings.examples.length
    ? "Type a text, or choose an example."
    : "Type a text.";
  find("answer").textContent = answers.length ? summary(answers) : hint;
  const times = answers.length ? await timeAll(text) : models.map(() => null);
  if (times) {
    showTimes(times);
    main.removeAttribute("aria-busy");
  }
}

function nameOf({ displayName, categoryName, index }) {
  return displayName || categoryName || `Class ${index}`;
}

function isProbability({ score }) {
  return score >= 0 && score <= 1 + 1e-6;
}

function shown(score, areProbabilities) {
  if (!areProbabilities) {
    return score.toLocaleString("en", { maximumFractionDigits: 3 });
  }
  const percents = 100 * score;
  if (percents > 0 && percents < 0.1) {
    return "< 0.1\u00a0%";
  }
  if (percents > 99.9 && percents < 100) {
    return "> 99.9\u00a0%";
  }
  return `${percents.toFixed(1)}\u00a0%`;
}

function showLabels(answers) {
  const areProbabilities = answers.flat().every(isProbability);
  const [first = []] = answers;
  const indices = new Set(
    answers.flatMap((answer) => answer.slice(0, SHOWN).map(({ index }) => index)),
  );
  const scores = answers.map(
    (answer) => new Map(answer.map((category) => [category.index, category.score])),
  );
  const rows = (answers.length ? first.concat(...answers.slice(1)) : [])
    .filter(({ index }) => indices.delete(index))
    .map((category) => {
      const row = make("li", {}, make("span", {
        className: "label",
        dir: "auto",
        textContent: nameOf(category),
      }));
      scores.forEach((known, place) => {
        // A file may leave out what is below its threshold.
        const score = known.get(category.index);
        const bar = make("i");
        bar.style.width = `${100 * Math.min(Math.max(score ?? 0, 0), 1)}%`;
        const said = score === undefined ? "–" : shown(score, areProbabilities);
        row.append(
          make("span", { className: `bar ${COLOURS[place]}` }, bar),
          make("data", { value: score ?? "" }, ...whose(place), said),
        );
      });
      return row;
    });
  find("labels").replaceChildren(...rows);
  const notes = [];
  if (rows.length < first.length) {
    notes.push(`${rows.length} of ${first.length} labels.`);
  }
  if (answers.length > 1) {
    notes.push(difference(answers));
  }
  if (!areProbabilities) {
    notes.push(
      "These are scores and not probabilities: the model ends without a " +
        "softmax or a sigmoid, or makes vectors and no classes.",
    );
  }
  find("labels-note").textContent = notes.join(" ");
}

// For screen readers, which do not see colours.
function whose(place) {
  if (!models[1]) {
    return [];
  }
  const textContent = `${models[place].name}: `;
  return [make("span", { className: "heard", textContent })];
}

function summary(answers) {
  const areProbabilities = answers.flat().every(isProbability);
  if (answers.some((answer) => !answer.length)) {
    return "No label is above the threshold of the file.";
  }
  const best = answers.map(([category]) => nameOf(category));
  const scores = answers.map(([{ score }]) => shown(score, areProbabilities));
  if (answers.length === 1) {
    return `${best[0]}: ${scores[0]}`;
  }
  if (answers[0][0].index === answers[1][0].index) {
    return `Both answer ${best[0]}: ${[...new Set(scores)].join(" and ")}`;
  }
  const said = models.map(
    ({ name }, place) => `${name} answers ${best[place]}: ${scores[place]}`,
  );
  return `They differ. ${said.join("; ")}`;
}

function difference([first, second]) {
  const others = new Map(second.map(({ index, score }) => [index, score]));
  const largest = Math.max(
    ...first
      .filter(({ index }) => others.has(index))
      .map(({ index, score }) => Math.abs(score - others.get(index))),
  );
  return `No score differs by more than ${Math.max(largest, 1e-5).toFixed(5)}.`;
}

async function warmUp(model) {
  callFor(WARM_UP, model, field.placeholder);
}

// Calls a model for some milliseconds; how often, or 0 if the clock stands.
function callFor(milliseconds, model, text) {
  const begin = performance.now();
  let calls = 0;
  let time;
  do {
    model.classify(text);
    calls += 1;
    time = performance.now() - begin;
    if (!time && calls === STILL) {
      return 0;
    }
  } while (time < milliseconds);
  return calls;
}

// Median milliseconds of a call of each model, or null once the text is another.
async function timeAll(text) {
  const calls = models.map((model) => callFor(ROUND, model, text));
  if (calls.includes(0)) {
    return calls.map(() => null);
  }
  const times = models.map(() => []);
  const begin = performance.now();
  for (let round = 0; round < ROUNDS; round += 1) {
    if (round > 2 && performance.now() - begin > LONGEST) {
      break;
    }
    // In turns: what else the machine does then falls on all of them.
    models.forEach((model, place) => {
      const from = performance.now();
      for (let call = 0; call < calls[place]; call += 1) {
        model.classify(text);
      }
      times[place].push((performance.now() - from) / calls[place]);
    });
    await new Promise((resume) => setTimeout(resume));
    if (text !== field.value) {
      return null;
    }
  }
  return times.map(median);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2
    ? sorted[middle]
    : (sorted[middle - 1] + sorted[middle]) / 2;
}

function rounded(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 2 });
}

function showTimes(times) {
  models.forEach((model, place) => {
    const time = times[place];
    model.time.textContent = time === null ? "–" : `${rounded(time)} ms`;
  });
  const areTimed = times[0] !== null;
  find("time-note").textContent = areTimed
    ? "The time of an answer is the median of repeated calls with this text, in " +
      "this browser on this device. It includes the tokenizer and what " +
      "MediaPipe does around the model."
    : "";
}
