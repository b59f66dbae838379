//! JSON read in place, for files of many small entries: a general reader spends most of its time between them.
//!
//! Nothing is repaired: what is not plainly right is `None`, and whoever asks falls back to a general reader, which says
//! what is wrong. Texts without escapes are lent, not copied.

use std::borrow::Cow;
use std::ops::Range;

/// A place in a JSON text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// A string of a text, without its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: u32,
    end: u32,
    escaped: bool,
}

impl Span {
    /// The string, of the text that it was found in.
    pub(super) fn of(self, text: &str) -> Option<Cow<'_, str>> {
        let (start, end) = (self.start as usize, self.end as usize);
        if self.escaped {
            serde_json::from_str(text.get(start - 1..=end)?).ok().map(Cow::Owned)
        } else {
            text.get(start..end).map(Cow::Borrowed)
        }
    }
}

/// Bytes that end a plain stretch of a string: its end, an escape, and what must not stand in one.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        stops[byte] = true;
        byte += 1;
    }
    stops[b'"' as usize] = true;
    stops[b'\\' as usize] = true;
    stops
};

impl<'a> Scanner<'a> {
    /// From the beginning of a text.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is no space, which is not taken.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        loop {
            let byte = *bytes.get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
            // entries are often indented by six spaces or eight
            while bytes.get(self.at..self.at + 4) == Some(b"    ") {
                self.at += 4;
            }
        }
    }

    /// Takes `byte`, behind spaces.
    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    /// Takes `byte`, behind spaces, if it is there.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Whether nothing but spaces is left.
    pub(super) fn ended(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Goes to the next entry of an object or array that ends with `close`: `Some(false)` behind the last. `first` is
    /// whether none has been read.
    pub(super) fn next(&mut self, close: u8, first: bool) -> Option<bool> {
        if self.take(close) {
            return Some(false);
        }
        if !first {
            self.expect(b',')?;
        }
        Some(true)
    }

    /// The key of an entry, with the colon.
    pub(super) fn key(&mut self) -> Option<Cow<'a, str>> {
        let key = self.string()?;
        self.expect(b':')?;
        Some(key)
    }

    /// A string.
    pub(super) fn string(&mut self) -> Option<Cow<'a, str>> {
        self.span()?.of(self.text)
    }

    /// Where a string is. That its escapes are right is not known before it is read.
    pub(super) fn span(&mut self) -> Option<Span> {
        self.expect(b'"')?;
        let start = u32::try_from(self.at).ok()?;
        match self.plain()? {
            b'"' => {
                let end = u32::try_from(self.at).ok()?;
                self.at += 1;
                Some(Span { start, end, escaped: false })
            }
            b'\\' => {
                self.string_end()?;
                Some(Span { start, end: u32::try_from(self.at - 1).ok()?, escaped: true })
            }
            _ => None,
        }
    }

    /// Goes to the end of a plain stretch, and says what stands there.
    fn plain(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        loop {
            let byte = *bytes.get(self.at)?;
            if STOPS[usize::from(byte)] {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// From within a string to behind it; whether escapes are right is not looked at.
    fn string_end(&mut self) -> Option<()> {
        loop {
            let stop = self.plain()?;
            self.at += 1;
            match stop {
                b'"' => return Some(()),
                b'\\' => self.at += 1,
                _ => return None,
            }
        }
    }

    /// A number that is an integer without sign, of at most nine digits.
    pub(super) fn integer(&mut self) -> Option<u32> {
        let first = self.peek()?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut value = 0_u32;
        while let Some(digit) = bytes.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            value = value.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
            self.at += 1;
        }
        let digits = self.at - start;
        let plain = !matches!(bytes.get(self.at), Some(b'.' | b'e' | b'E'));
        ((1..=9).contains(&digits) && (first != b'0' || digits == 1) && plain).then_some(value)
    }

    /// Where the next value is, of any kind. That its brackets close is all that is known of it.
    pub(super) fn value(&mut self) -> Option<Range<usize>> {
        let first = self.peek()?;
        let start = self.at;
        if !matches!(first, b'{' | b'[' | b'"') {
            let rest = self.text.get(start..)?;
            let end = rest.find([',', '}', ']', ' ', '\n', '\t', '\r']).filter(|end| *end > 0);
            self.at = start + end?;
            return Some(start..self.at);
        }
        let mut depth = 0_usize;
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            self.at += 1;
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.checked_sub(1)?,
                b'"' => self.string_end()?,
                _ => {}
            }
            if depth == 0 {
                return Some(start..self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_in_place() {
        let text =
            " { \"a\" :12,\n\t\"\\u0062\\\"\" : [ 1 , \"é\" ], \"c\":{\"]\":[{}]} ,\"d\":null }\n";
        let mut scanner = Scanner::new(text);
        scanner.expect(b'{').unwrap();
        assert_eq!(scanner.next(b'}', true), Some(true));
        assert!(matches!(scanner.key(), Some(Cow::Borrowed("a"))));
        assert_eq!(scanner.integer(), Some(12));
        assert_eq!(scanner.next(b'}', false), Some(true));
        assert_eq!(scanner.key().as_deref(), Some("b\""));
        assert_eq!(scanner.value().map(|range| &text[range]), Some("[ 1 , \"é\" ]"));
        assert_eq!(scanner.next(b'}', false), Some(true));
        assert_eq!(scanner.key().as_deref(), Some("c"));
        assert_eq!(scanner.value().map(|range| &text[range]), Some("{\"]\":[{}]}"));
        assert_eq!(scanner.next(b'}', false), Some(true));
        assert_eq!(scanner.key().as_deref(), Some("d"));
        assert_eq!(scanner.value().map(|range| &text[range]), Some("null"));
        assert_eq!(scanner.next(b'}', false), Some(false));
        assert!(scanner.ended());
    }

    #[test]
    fn strings_and_integers_are_those_of_a_general_reader_or_none() {
        let strings = [
            r#""""#,
            r#""a\nb""#,
            r#""\ud83d\ude00""#,
            r#""\ud83d""#,
            r#""\x""#,
            r#""a"#,
            "\"\n\"",
            r#""\"#,
            "x",
            "",
        ];
        for text in strings {
            let found = Scanner::new(text).string().map(Cow::into_owned);
            assert_eq!(found, serde_json::from_str::<String>(text).ok(), "{text}");
        }
        for text in
            ["0", "7", "123456789", "1234567890", "4294967296", "01", "-1", "1.0", "1e3", "", "x"]
        {
            let found = Scanner::new(text).integer();
            let expected = serde_json::from_str::<u32>(text).ok().filter(|_| text.len() < 10);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_is_cut_off_or_crooked_is_none() {
        for text in ["[1", "{\"a\":\"}", "\"", "]", "12", ""] {
            assert_eq!(Scanner::new(text).value(), None, "{text}");
        }
        let mut scanner = Scanner::new("[1 2]");
        scanner.expect(b'[').unwrap();
        assert_eq!((scanner.next(b']', true), scanner.integer()), (Some(true), Some(1)));
        assert_eq!(scanner.next(b']', false), None);
        assert_eq!(Scanner::new("\"a\" 1").key(), None);
    }
}
