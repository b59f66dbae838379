//! The media strip: the token slots that stand for one media item.
//!
//! ```text
//! strip := item*
//! item  := <token>                              a token of `[tokens]`, by name
//!        | "literal"                            a text of `[image.literals]`, by name
//!        | *                                    one encoder row, on a fill token
//!        | ~vector                              a learned vector of `[image.connector] vectors`, by name, on a fill token
//!        | [count: strip]                       repeated `count` times
//!        | [count as index: strip]              likewise; token texts inside may hold `{index}`, counted from 1
//!        | [count; separator: strip]            with `separator` between repetitions
//!        | (condition ? strip : strip)
//! ```
//!
//! Counts and conditions are [`Expression`]s over config values and the layout. The length of a strip is computed from
//! its structure; the descriptor states the same number again under `[floor]`, and `check` holds the two against each
//! other on every layout it enumerates.

use std::collections::BTreeMap;

use super::expression::{Bound, Expression, ExpressionError, Kind};

/// The most slots one strip may expand to; a larger count is an error, not an allocation.
pub const SLOT_LIMIT: u64 = 1 << 28;
const NESTING_LIMIT: usize = 16;

/// A parsed strip.
#[derive(Debug, Clone)]
pub struct Strip {
    text: String,
    items: Vec<Item>,
}

/// One item of a strip.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Token(String),
    Literal(String),
    Row,
    Vector(String),
    Repeat { count: Expression, index: Option<String>, separator: Vec<Item>, body: Vec<Item> },
    Choose { condition: Expression, then: Vec<Item>, otherwise: Vec<Item> },
}

/// The repetitions around a slot that have a name: the name, and the number of the repetition, from 1.
pub type Indices = Vec<(String, u64)>;

/// One slot of an expanded strip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// A token, by its name in `[tokens]`, and the indices that its text may hold.
    Token(String, Indices),
    /// A text, by its name in `[image.literals]`.
    Literal(String),
    /// The next encoder row.
    Row,
    /// A learned vector, by name.
    Vector(String),
}

/// How many slots of each kind a strip has for one layout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StripLength {
    /// Encoder rows.
    pub rows: u64,
    /// Learned vectors.
    pub vectors: u64,
    /// Tokens.
    pub tokens: u64,
    /// Occurrences of each literal.
    pub literals: BTreeMap<String, u64>,
}

impl StripLength {
    /// Encoder rows and learned vectors: what is spliced in.
    pub fn embeds(&self) -> Option<u64> {
        self.rows.checked_add(self.vectors)
    }

    fn add(&mut self, other: &Self, times: u64) -> Option<()> {
        let step = |sum: &mut u64, value: u64| {
            *sum = value.checked_mul(times).and_then(|value| sum.checked_add(value))?;
            Some(())
        };
        step(&mut self.rows, other.rows)?;
        step(&mut self.vectors, other.vectors)?;
        step(&mut self.tokens, other.tokens)?;
        for (name, count) in &other.literals {
            step(self.literals.entry(name.clone()).or_insert(0), *count)?;
        }
        Some(())
    }

    /// Slots, each literal counted with the token length that `literal` gives.
    pub fn slots(&self, literal: impl Fn(&str) -> Option<u64>) -> Option<u64> {
        let mut sum = self.rows.checked_add(self.vectors)?.checked_add(self.tokens)?;
        for (name, count) in &self.literals {
            sum = literal(name)?.checked_mul(*count)?.checked_add(sum)?;
        }
        Some(sum)
    }
}

impl Strip {
    /// Parses a strip.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let items = parser.items(&[])?;
        Ok(Self { text: text.to_owned(), items })
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it is made of.
    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Its conditions, each once.
    pub(super) fn conditions(&self) -> Vec<&Expression> {
        fn collect<'a>(items: &'a [Item], found: &mut Vec<&'a Expression>) {
            for item in items {
                let branches: &[&[Item]] = match item {
                    Item::Repeat { separator, body, .. } => &[separator, body],
                    Item::Choose { condition, then, otherwise } => {
                        if !found.iter().any(|known| known.text() == condition.text()) {
                            found.push(condition);
                        }
                        &[then, otherwise]
                    }
                    _ => &[],
                };
                for branch in branches {
                    collect(branch, found);
                }
            }
        }
        let mut found = Vec::new();
        collect(&self.items, &mut found);
        found
    }

    /// Whether it holds neither repetitions nor conditions.
    pub fn is_flat(&self) -> bool {
        !self.items.iter().any(|item| matches!(item, Item::Repeat { .. } | Item::Choose { .. }))
    }

    /// Every config or layout name that a count or condition reads.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        visit(&self.items, &mut |item| {
            let expression = match item {
                Item::Repeat { count, .. } => count,
                Item::Choose { condition, .. } => condition,
                _ => return,
            };
            names.extend(expression.names().iter().cloned());
        });
        names.sort();
        names.dedup();
        names
    }

    /// The names of the tokens it holds.
    pub fn tokens(&self) -> Vec<String> {
        self.collect(|item| if let Item::Token(name) = item { Some(name.clone()) } else { None })
    }

    /// The names of the literals it holds.
    pub fn literals(&self) -> Vec<String> {
        self.collect(|item| if let Item::Literal(name) = item { Some(name.clone()) } else { None })
    }

    /// The names of the learned vectors it holds.
    pub fn vectors(&self) -> Vec<String> {
        self.collect(|item| if let Item::Vector(name) = item { Some(name.clone()) } else { None })
    }

    fn collect(&self, pick: impl Fn(&Item) -> Option<String>) -> Vec<String> {
        let mut found = Vec::new();
        visit(&self.items, &mut |item| found.extend(pick(item)));
        found.sort();
        found.dedup();
        found
    }

    /// Counts the slots for one layout without expanding.
    pub fn length(
        &self,
        bindings: &BTreeMap<String, Bound>,
    ) -> Result<StripLength, ExpressionError> {
        length(&self.items, bindings, &self.text)
    }

    /// The number of embeds as a polynomial in the `free` names; `None` where it is not one.
    pub fn embed_polynomial(
        &self,
        free: &[&str],
        bindings: &BTreeMap<String, Bound>,
    ) -> Option<BTreeMap<Vec<u32>, i64>> {
        embed_polynomial(&self.items, free, bindings)
    }

    /// Expands the strip for one layout.
    pub fn expand(&self, bindings: &BTreeMap<String, Bound>) -> Result<Vec<Slot>, ExpressionError> {
        let size = self.length(bindings)?.slots(|_| Some(1)).unwrap_or(u64::MAX);
        if size > SLOT_LIMIT {
            return Err(plain(format!("strip `{}` has more than {SLOT_LIMIT} slots", self.text)));
        }
        let mut slots = Vec::new();
        expand(&self.items, bindings, &self.text, &Vec::new(), &mut slots)?;
        Ok(slots)
    }
}

fn embed_polynomial(
    items: &[Item],
    free: &[&str],
    bindings: &BTreeMap<String, Bound>,
) -> Option<BTreeMap<Vec<u32>, i64>> {
    let mut sum: BTreeMap<Vec<u32>, i64> = BTreeMap::new();
    for item in items {
        match item {
            Item::Row | Item::Vector(_) => {
                let ones = sum.entry(vec![0; free.len()]).or_insert(0);
                *ones = ones.checked_add(1)?;
            }
            Item::Token(_) | Item::Literal(_) => {}
            Item::Repeat { count, separator, body, .. } => {
                if !embed_polynomial(separator, free, bindings)?.is_empty() {
                    return None;
                }
                let body = embed_polynomial(body, free, bindings)?;
                if body.is_empty() {
                    continue;
                }
                let count = count.polynomial(free, bindings)?;
                for (inner_powers, inner_factor) in body {
                    for (powers, factor) in &count {
                        let powers = powers.iter().zip(&inner_powers).map(|(a, b)| a + b).collect();
                        let slot = sum.entry(powers).or_insert(0);
                        *slot = slot.checked_add(factor.checked_mul(inner_factor)?)?;
                    }
                }
            }
            Item::Choose { .. } => return None,
        }
    }
    Some(sum)
}

fn plain(message: String) -> ExpressionError {
    ExpressionError { message, hint: None }
}

fn visit(items: &[Item], action: &mut impl FnMut(&Item)) {
    for item in items {
        action(item);
        match item {
            Item::Repeat { separator, body, .. } => {
                visit(separator, action);
                visit(body, action);
            }
            Item::Choose { then, otherwise, .. } => {
                visit(then, action);
                visit(otherwise, action);
            }
            _ => {}
        }
    }
}

fn repetitions(
    count: &Expression,
    bindings: &BTreeMap<String, Bound>,
    strip: &str,
) -> Result<u64, ExpressionError> {
    let number = count.integer(bindings)?;
    u64::try_from(number).map_err(|_| {
        plain(format!("`{}` in strip `{strip}` gives {number}, a count below zero", count.text()))
    })
}

fn length(
    items: &[Item],
    bindings: &BTreeMap<String, Bound>,
    strip: &str,
) -> Result<StripLength, ExpressionError> {
    let overflow = || plain(format!("strip `{strip}` overflows 64 bits"));
    let mut sum = StripLength::default();
    for item in items {
        match item {
            Item::Token(_) => sum.tokens += 1,
            Item::Literal(name) => *sum.literals.entry(name.clone()).or_insert(0) += 1,
            Item::Row => sum.rows += 1,
            Item::Vector(_) => sum.vectors += 1,
            Item::Repeat { count, separator, body, .. } => {
                let count = repetitions(count, bindings, strip)?;
                sum.add(&length(body, bindings, strip)?, count).ok_or_else(overflow)?;
                sum.add(&length(separator, bindings, strip)?, count.saturating_sub(1))
                    .ok_or_else(overflow)?;
            }
            Item::Choose { condition, then, otherwise } => {
                let branch = if condition.truth(bindings)? { then } else { otherwise };
                sum.add(&length(branch, bindings, strip)?, 1).ok_or_else(overflow)?;
            }
        }
    }
    Ok(sum)
}

fn expand(
    items: &[Item],
    bindings: &BTreeMap<String, Bound>,
    strip: &str,
    indices: &Indices,
    slots: &mut Vec<Slot>,
) -> Result<(), ExpressionError> {
    for item in items {
        match item {
            Item::Token(name) => slots.push(Slot::Token(name.clone(), indices.clone())),
            Item::Literal(name) => slots.push(Slot::Literal(name.clone())),
            Item::Row => slots.push(Slot::Row),
            Item::Vector(name) => slots.push(Slot::Vector(name.clone())),
            Item::Repeat { count, index, separator, body } => {
                for number in 1..=repetitions(count, bindings, strip)? {
                    if number > 1 {
                        expand(separator, bindings, strip, indices, slots)?;
                    }
                    match index {
                        Some(name) => {
                            let mut indices = indices.clone();
                            indices.push((name.clone(), number));
                            expand(body, bindings, strip, &indices, slots)?;
                        }
                        None => expand(body, bindings, strip, indices, slots)?,
                    }
                }
            }
            Item::Choose { condition, then, otherwise } => {
                expand(
                    if condition.truth(bindings)? { then } else { otherwise },
                    bindings,
                    strip,
                    indices,
                    slots,
                )?;
            }
        }
    }
    Ok(())
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn fail(&self, what: &str) -> ExpressionError {
        let character = 1 + self.text.get(..self.at).map_or(0, |before| before.chars().count());
        plain(format!("strip `{}` {what} at character {character}", self.text))
    }

    fn items(&mut self, ends: &[char]) -> Result<Vec<Item>, ExpressionError> {
        self.depth += 1;
        if self.depth > NESTING_LIMIT {
            return Err(self.fail(&format!("is nested deeper than {NESTING_LIMIT}")));
        }
        let mut items = Vec::new();
        while let Some(character) = self.peek() {
            if ends.contains(&character) {
                break;
            }
            self.at += character.len_utf8();
            match character {
                ' ' | '\n' | '\t' => {}
                '*' => items.push(Item::Row),
                '<' => items.push(Item::Token(self.name('>')?)),
                '"' => items.push(Item::Literal(self.name('"')?)),
                '~' => {
                    let length = self
                        .rest()
                        .chars()
                        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                        .count();
                    let name = self.rest().chars().take(length).collect::<String>();
                    if name.is_empty() {
                        return Err(self.fail("has `~` without a vector's name"));
                    }
                    self.at += length;
                    items.push(Item::Vector(name));
                }
                '[' => {
                    let (count, index) = self.count()?;
                    let separator = if self.peek() == Some(';') {
                        self.at += 1;
                        self.items(&[':'])?
                    } else {
                        Vec::new()
                    };
                    self.eat(':')?;
                    let body = self.items(&[']'])?;
                    self.eat(']')?;
                    items.push(Item::Repeat { count, index, separator, body });
                }
                '(' => {
                    let condition = self.expression(Kind::Truth, &['?'])?;
                    self.eat('?')?;
                    let then = self.items(&[':'])?;
                    self.eat(':')?;
                    let otherwise = self.items(&[')'])?;
                    self.eat(')')?;
                    items.push(Item::Choose { condition, then, otherwise });
                }
                other => {
                    self.at -= other.len_utf8();
                    return Err(self.fail(&format!("has an unexpected `{other}`")));
                }
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    fn eat(&mut self, expected: char) -> Result<(), ExpressionError> {
        if self.peek() == Some(expected) {
            self.at += expected.len_utf8();
            Ok(())
        } else {
            Err(self.fail(&format!("lacks a `{expected}`")))
        }
    }

    /// `count` or `count as index`, up to `:` or `;`.
    fn count(&mut self) -> Result<(Expression, Option<String>), ExpressionError> {
        let end = self.rest().find([':', ';']).unwrap_or(self.rest().len());
        let head = self.rest().get(..end).unwrap_or("");
        let Some(split) = head.find(" as ") else {
            return Ok((self.expression(Kind::Integer, &[':', ';'])?, None));
        };
        let index = head.get(split + " as ".len()..).unwrap_or("").trim().to_owned();
        let plain_name =
            !index.is_empty() && index.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain_name {
            return Err(
                self.fail(&format!("has `{index}`, which is not a name (letters, digits, `_`)"))
            );
        }
        let text = head.get(..split).unwrap_or("").trim().to_owned();
        let count = self.parsed(&text, Kind::Integer)?;
        self.at += end;
        Ok((count, Some(index)))
    }

    fn name(&mut self, end: char) -> Result<String, ExpressionError> {
        let Some(length) = self.rest().find(end) else {
            return Err(self.fail(&format!("lacks a `{end}`")));
        };
        let name = self.rest().get(..length).unwrap_or("").to_owned();
        let plain_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain_name {
            return Err(
                self.fail(&format!("has `{name}`, which is not a name (letters, digits, `_`)"))
            );
        }
        self.at += length + end.len_utf8();
        Ok(name)
    }

    /// An expression up to the first of `ends` outside parentheses.
    fn expression(&mut self, kind: Kind, ends: &[char]) -> Result<Expression, ExpressionError> {
        let mut depth = 0_usize;
        let mut length = None;
        for (index, character) in self.rest().char_indices() {
            match character {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                other if depth == 0 && ends.contains(&other) => {
                    length = Some(index);
                    break;
                }
                _ => {}
            }
        }
        let Some(length) = length else {
            return Err(self.fail(&format!("lacks a `{}`", ends.first().copied().unwrap_or(':'))));
        };
        let text = self.rest().get(..length).unwrap_or("").trim().to_owned();
        self.at += length;
        self.parsed(&text, kind)
    }

    fn parsed(&self, text: &str, kind: Kind) -> Result<Expression, ExpressionError> {
        let expression = Expression::parse(text).map_err(|mut error| {
            error.message = format!("{} in strip `{}`", error.message, self.text);
            error
        })?;
        let found = expression.kind();
        if found != kind && found != Kind::Name {
            return Err(self.fail(&format!(
                "needs {}, and `{text}` gives {}",
                kind.words(),
                found.words()
            )));
        }
        Ok(expression)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bindings(pairs: &[(&str, i64)]) -> BTreeMap<String, Bound> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Bound::Integer(*value))).collect()
    }

    /// Strips of ten families against the closed formulas of their processors, on every layout of a range.
    #[test]
    fn lengths_equal_closed_formulas() {
        type Formula = fn(i64, i64) -> i64;
        let cases: [(&str, Formula); 7] = [
            ("[rows * cols: *]", |r, c| r * c),
            ("[9: *] [rows: [cols: *] ~newline]", |r, c| 9 + r * (c + 1)),
            ("[rows; <break>: [cols: *]] <end>", |r, c| r * (c + 1)),
            ("<low> [3: [2: *] <col>] <end> <start> [rows: [cols: *] <col>] <end>", |r, c| {
                3 * 3 + 4 + r * (c + 1)
            }),
            ("<start> [rows * cols * 4: *] <end>", |r, c| 4 * r * c + 2),
            (
                "<start> (rows * cols > 1 ? [rows: [cols; <x>: [4: *]] <y>] :) <image> [4: *] <end>",
                |r, c| 3 + 4 + if r * c > 1 { r * (4 * c + c - 1 + 1) } else { 0 },
            ),
            ("\"gap\" <boi> [5: *] <eoi> \"gap\"", |_, _| 9),
        ];
        for (text, formula) in cases {
            let strip = Strip::parse(text).unwrap();
            for rows in 1..40 {
                for cols in 1..40 {
                    let bindings = bindings(&[("rows", rows), ("cols", cols)]);
                    let length = strip.length(&bindings).unwrap().slots(|_| Some(1)).unwrap();
                    assert_eq!(
                        i64::try_from(length).unwrap(),
                        formula(rows, cols),
                        "{text} at {rows}x{cols}"
                    );
                    if rows < 8 && cols < 8 {
                        assert_eq!(strip.expand(&bindings).unwrap().len() as u64, length);
                    }
                }
            }
        }
    }

    #[test]
    fn expands_in_order() {
        let strip = Strip::parse("<a> [2; ~v: [n: *]] \"gap\"").unwrap();
        let slots = strip.expand(&bindings(&[("n", 1)])).unwrap();
        let token = |name: &str| Slot::Token(name.to_owned(), Vec::new());
        assert_eq!(
            slots,
            [
                token("a"),
                Slot::Row,
                Slot::Vector("v".into()),
                Slot::Row,
                Slot::Literal("gap".into())
            ]
        );
        assert_eq!(strip.names(), ["n"]);
        assert_eq!(strip.vectors(), ["v"]);
    }

    #[test]
    fn repetitions_are_numbered() {
        let strip = Strip::parse("[2 as row: [3 as col; <x>: <tile>] <end>]").unwrap();
        let slots = strip.expand(&bindings(&[])).unwrap();
        assert_eq!(slots.len(), 12);
        let indices = |row, col| vec![("row".to_owned(), row), ("col".to_owned(), col)];
        assert_eq!(slots[8], Slot::Token("tile".to_owned(), indices(2, 2)));
        assert_eq!(slots[11], Slot::Token("end".to_owned(), vec![("row".to_owned(), 2)]));
        assert!(Strip::parse("[2 as: *]").is_err());
        assert!(Strip::parse("[2 as a b: *]").is_err());
    }

    #[test]
    fn refuses_malformed_strips() {
        for text in [
            "[3 *]", "[3: *", "<a", "\"x", "~", "[: *]", "(a ? *)", "x", "[3; *]", "< >",
            "[2^3: *]",
        ] {
            assert!(Strip::parse(text).is_err(), "{text}");
        }
        assert!(Strip::parse(&"[1: ".repeat(100)).is_err());
        let strip = Strip::parse("[n: *]").unwrap();
        assert!(strip.length(&bindings(&[("n", -1)])).is_err());
        assert!(strip.expand(&bindings(&[("n", i64::MAX)])).is_err());
        assert!(
            Strip::parse("[n: [n: [n: *]]]")
                .unwrap()
                .length(&bindings(&[("n", i64::MAX)]))
                .is_err()
        );
    }
}
