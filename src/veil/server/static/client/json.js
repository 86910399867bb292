/** JSON that is digested: numbers stay as they were written, since 1 and 1.0 are different bytes. */
import { WireError } from "./errors.js";
/**
 * Canonical JSON of a text in JSON: sorted keys, no blanks, ASCII, numbers as they stand.
 *
 * It is what Python's `json.dumps(..., sort_keys=True, separators=(",", ":"))` writes of what Python wrote. Raises WireError
 * for what is no JSON, or nested more than a hundred deep.
 */
export function canonicalJson(text) {
    return new Reader(text).whole();
}
/** The member `name` of the object that a text in JSON is, as text; null if it has none. */
export function memberText(text, name) {
    const reader = new Reader(text);
    reader.whole();
    return reader.members.get(name) ?? null;
}
const MOST_DEEP = 100;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;
const BLANKS = /[ \t\n\r]*/y;
/** A reader of one text that writes what it reads in canonical form. */
class Reader {
    text;
    /** Members of the outermost object. */
    members = new Map();
    at = 0;
    constructor(text) {
        this.text = text;
    }
    whole() {
        const value = this.value(0);
        this.take(BLANKS);
        if (this.at !== this.text.length)
            throw this.trouble();
        return value;
    }
    value(depth) {
        if (depth > MOST_DEEP)
            throw this.trouble();
        this.take(BLANKS);
        const next = this.text[this.at];
        if (next === "{")
            return this.object(depth);
        if (next === "[")
            return this.array(depth);
        if (next === '"')
            return ascii(this.string());
        return this.take(WORD) || this.take(NUMBER) || this.fail();
    }
    object(depth) {
        const members = new Map();
        this.items("}", () => {
            this.take(BLANKS);
            const name = this.string();
            this.expect(":");
            members.set(name, this.value(depth + 1));
        });
        if (depth === 0)
            members.forEach((value, name) => this.members.set(name, value));
        const names = [...members.keys()].sort(byCodePoint);
        return `{${names.map((name) => `${ascii(name)}:${members.get(name)}`).join(",")}}`;
    }
    array(depth) {
        const values = [];
        this.items("]", () => values.push(this.value(depth + 1)));
        return `[${values.join(",")}]`;
    }
    /** Read items up to a bracket, which they are apart from by commas. */
    items(close, item) {
        this.at++;
        this.take(BLANKS);
        if (this.text[this.at] === close) {
            this.at++;
            return;
        }
        for (;;) {
            item();
            this.take(BLANKS);
            if (this.text[this.at] === close)
                break;
            this.expect(",");
        }
        this.at++;
    }
    string() {
        return JSON.parse(this.take(STRING) || this.fail());
    }
    expect(mark) {
        this.take(BLANKS);
        if (this.text[this.at++] !== mark)
            this.fail();
    }
    take(pattern) {
        pattern.lastIndex = this.at;
        const found = pattern.exec(this.text)?.[0] ?? "";
        this.at += found.length;
        return found;
    }
    fail() {
        throw this.trouble();
    }
    trouble() {
        return new WireError(`the answer is no JSON at character ${this.at}`);
    }
}
/** A text in JSON with all but printable ASCII escaped. */
function ascii(value) {
    return JSON.stringify(value).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
/** Python sorts texts by code points, JavaScript by halves of them. */
function byCodePoint(a, b) {
    const [left, right] = [[...a], [...b]];
    for (let i = 0; i < Math.min(left.length, right.length); i++) {
        const difference = left[i].codePointAt(0) - right[i].codePointAt(0);
        if (difference !== 0)
            return difference;
    }
    return left.length - right.length;
}
