//! What the reference adds to the template language: `tojson`, `raise_exception` and `strftime_now`
//! (`_cached_compile_jinja_template`).

use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

/// The text that a template raised.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// `raise_exception(message)`: ends the rendering.
pub(super) fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_string())
        .with_source(Raised(message.to_string())))
}

/// `value | tojson`: Python's `json.dumps` without its escapes for characters beyond ASCII.
pub(super) fn tojson(value: &Value, options: &Kwargs) -> Result<String, Error> {
    if value.kind() == ValueKind::Undefined {
        return Err(Error::new(ErrorKind::InvalidOperation, "an undefined value has no JSON"));
    }
    let json = serde_json::to_value(Serde(value).0)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let indent = match options.get::<Option<Value>>("indent")? {
        Some(value) if !value.is_none() => Some(match value.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(value).unwrap_or(0).min(64)),
        }),
        _ => None,
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let item_default = if indent.is_some() { "," } else { ", " };
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.as_str(), key.as_str()),
        _ => (item_default, ": "),
    };
    let style = Style {
        indent: indent.as_deref(),
        item,
        key,
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(text)
}

/// The options of `json.dumps`.
struct Style<'a> {
    indent: Option<&'a str>,
    item: &'a str,
    key: &'a str,
    ascii: bool,
    sorted: bool,
}

impl Style<'_> {
    fn write(&self, json: &Json, depth: usize, text: &mut String) {
        match json {
            Json::Array(items) => {
                self.write_all('[', ']', items.iter().map(|item| (None, item)), depth, text);
            }
            Json::Object(map) => {
                let mut entries: Vec<_> =
                    map.iter().map(|(key, value)| (Some(key.as_str()), value)).collect();
                if self.sorted {
                    entries.sort_by_key(|&(key, _)| key);
                }
                self.write_all('{', '}', entries.into_iter(), depth, text);
            }
            Json::String(string) => self.write_string(string, text),
            other => text.push_str(&other.to_string()),
        }
    }

    fn write_all<'j>(
        &self,
        open: char,
        close: char,
        entries: impl ExactSizeIterator<Item = (Option<&'j str>, &'j Json)>,
        depth: usize,
        text: &mut String,
    ) {
        let empty = entries.len() == 0;
        text.push(open);
        for (index, (key, value)) in entries.enumerate() {
            if index > 0 {
                text.push_str(self.item);
            }
            self.new_line(depth + 1, text);
            if let Some(key) = key {
                self.write_string(key, text);
                text.push_str(self.key);
            }
            self.write(value, depth + 1, text);
        }
        if !empty {
            self.new_line(depth, text);
        }
        text.push(close);
    }

    fn new_line(&self, depth: usize, text: &mut String) {
        if let Some(indent) = self.indent {
            text.push('\n');
            text.push_str(&indent.repeat(depth));
        }
    }

    fn write_string(&self, string: &str, text: &mut String) {
        let quoted = Json::from(string).to_string();
        if !self.ascii {
            text.push_str(&quoted);
            return;
        }
        for character in quoted.chars() {
            if character.is_ascii() {
                text.push(character);
            } else {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    let _ = write!(text, "\\u{unit:04x}"); // a string takes everything
                }
            }
        }
    }
}

/// `strftime_now(format)`: the time, in UTC. (The reference takes the machine's time zone, which the standard library
/// does not know.)
pub(super) fn strftime_now(format: &str) -> String {
    let seconds =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    strftime(format, seconds)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The common directives of C's `strftime`, `-` for no padding included; others stay as they are.
fn strftime(format: &str, seconds: u64) -> String {
    let days = seconds / 86_400;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (year, month, day, day_of_year) = civil(days);
    let month_name = MONTHS.get(month as usize - 1).copied().unwrap_or_default();
    let day_name = DAYS[((days + 4) % 7) as usize]; // the epoch was a Thursday
    let short = |name: &str| name.get(..3).unwrap_or_default().to_string();
    let mut text = String::new();
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let bare = characters.next_if_eq(&'-').is_some();
        let padded = |value: u64, width: usize| {
            if bare { value.to_string() } else { format!("{value:0width$}") }
        };
        let piece = match characters.next() {
            Some('Y') => year.to_string(),
            Some('y') => padded(year % 100, 2),
            Some('m') => padded(month, 2),
            Some('d') => padded(day, 2),
            Some('e') if bare => day.to_string(),
            Some('e') => format!("{day:2}"),
            Some('j') => padded(day_of_year, 3),
            Some('H') => padded(hour, 2),
            Some('I') => padded((hour + 11) % 12 + 1, 2),
            Some('M') => padded(minute, 2),
            Some('S') => padded(second, 2),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_string(),
            Some('B') => month_name.to_string(),
            Some('b' | 'h') => short(month_name),
            Some('A') => day_name.to_string(),
            Some('a') => short(day_name),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('%') | None => "%".to_string(),
            Some(other) => format!("%{}{other}", if bare { "-" } else { "" }),
        };
        text.push_str(&piece);
    }
    text
}

/// Year, month, day of the month and day of the year of a day counted from the epoch.
fn civil(mut days: u64) -> (u64, u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let day_of_year = days + 1;
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1, day_of_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let seconds = 1_709_212_205; // 2024-02-29 13:10:05 UTC
        assert_eq!(
            strftime("%d %B %Y, %A %-I:%M %p %j %q %", seconds),
            "29 February 2024, Thursday 1:10 PM 060 %q %"
        );
        assert_eq!(strftime("%a %b %e %y %F %T", 0), "Thu Jan  1 70 1970-01-01 00:00:00");
        assert_eq!(strftime("%Y-%m-%d", 1_735_603_200), "2024-12-31");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let value = Value::from(Serde(
            serde_json::json!({"b": [1, 2.5, null, true], "a": {"é": "<\"\n>"}, "c": []}),
        ));
        let dump = |options: &[(&str, Value)]| {
            let options: Kwargs =
                options.iter().map(|(key, value)| (*key, value.clone())).collect();
            tojson(&value, &options).unwrap()
        };
        assert_eq!(dump(&[]), r#"{"b": [1, 2.5, null, true], "a": {"é": "<\"\n>"}, "c": []}"#);
        let options = [("ensure_ascii", true.into()), ("sort_keys", true.into())];
        assert_eq!(
            dump(&options),
            r#"{"a": {"\u00e9": "<\"\n>"}, "b": [1, 2.5, null, true], "c": []}"#
        );
        let expected = "{\n  \"b\": [\n    1,\n    2.5,\n    null,\n    true\n  ],\n  \"a\": {\n    \"é\": \"<\\\"\\n>\"\n  },\n  \"c\": []\n}";
        assert_eq!(dump(&[("indent", 2.into())]), expected);
    }
}
