//! Lengths as polynomials: a strip and a formula compared without any checkpoint.
//!
//! A [`Sum`] is a polynomial over names, with integer factors. What is no polynomial (`min`, `max`, quotients) becomes a
//! variable of its own, written as its text, unless the bounds of the names decide it: of two arguments of `min` one is the
//! lesser if their difference has no negative factor. To that end a name that is at least *n* is replaced by itself plus
//! *n*, so that every variable begins at 0.
//!
//! A strip with conditions is compared case by case ([`cases`]); a condition that restricts one name (`rows == 0`) restricts
//! it in its cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use evalexpr::{Node, Operator, Value};

use super::expression::{Expression, FUNCTIONS};
use super::strip::{Item, Strip};

/// The most conditions of a strip that are told apart: each doubles the cases.
const CONDITION_LIMIT: usize = 5;
/// The most terms of a polynomial.
const TERM_LIMIT: usize = 400;

/// Names and their powers.
type Powers = BTreeMap<String, u32>;

/// A polynomial over names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sum {
    terms: BTreeMap<Powers, i64>,
}

/// What names of the layout can be.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// The least value; left out, 0.
    pub least: BTreeMap<String, i64>,
    /// The greatest value, where there is one.
    pub most: BTreeMap<String, i64>,
    /// Names that are 0 together.
    pub together: Vec<[&'static str; 2]>,
    /// Names that others determine, with the expression that does.
    pub derived: BTreeMap<String, Expression>,
}

/// One outcome of a strip's conditions, and what it says of names.
#[derive(Debug, Clone, Default)]
pub struct Case {
    given: BTreeMap<String, Sum>,
    chosen: BTreeMap<String, bool>,
}

impl Sum {
    /// A number.
    pub fn constant(number: i64) -> Self {
        let mut sum = Self::default();
        if number != 0 {
            sum.terms.insert(Powers::new(), number);
        }
        sum
    }

    /// A name.
    pub fn name(name: &str) -> Self {
        Self { terms: BTreeMap::from([(Powers::from([(name.to_owned(), 1)]), 1)]) }
    }

    /// Whether it is 0 whatever the names are.
    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    /// The number, if it reads no name.
    pub fn as_constant(&self) -> Option<i64> {
        match self.terms.iter().next() {
            None => Some(0),
            Some((powers, factor)) if powers.is_empty() && self.terms.len() == 1 => Some(*factor),
            _ => None,
        }
    }

    /// Whether it is a polynomial of names alone, without quotients, minima and the like.
    pub fn is_plain(&self) -> bool {
        self.terms.keys().flat_map(BTreeMap::keys).all(|name| !name.contains('('))
    }

    /// The names it reads, those inside quotients and minima as well.
    pub fn names(&self) -> BTreeSet<String> {
        let words = self.terms.keys().flat_map(BTreeMap::keys).flat_map(|text| {
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
        });
        words
            .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
            .filter(|word| !FUNCTIONS.contains(word))
            .map(str::to_owned)
            .collect()
    }

    /// The difference; `None` beyond 64 bits.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.times(&Self::constant(-1))?)
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        let mut sum = self.clone();
        for (powers, factor) in &other.terms {
            sum.add(powers, *factor)?;
        }
        Some(sum)
    }

    fn times(&self, other: &Self) -> Option<Self> {
        let mut product = Self::default();
        for (left, left_factor) in &self.terms {
            for (right, right_factor) in &other.terms {
                let mut powers = left.clone();
                for (name, power) in right {
                    *powers.entry(name.clone()).or_insert(0) += power;
                }
                product.add(&powers, left_factor.checked_mul(*right_factor)?)?;
            }
        }
        Some(product)
    }

    fn add(&mut self, powers: &Powers, factor: i64) -> Option<()> {
        let slot = self.terms.entry(powers.clone()).or_insert(0);
        *slot = slot.checked_add(factor)?;
        if *slot == 0 {
            self.terms.remove(powers);
        }
        (self.terms.len() <= TERM_LIMIT).then_some(())
    }

    /// Whether no value that its names can take makes it negative, as far as its factors tell.
    fn rises_from_zero(&self) -> bool {
        self.is_plain() && self.terms.values().all(|factor| *factor >= 0)
    }

    fn divided(&self, divisor: i64) -> Option<Self> {
        if divisor == 0 || self.terms.values().any(|factor| factor % divisor != 0) {
            return None;
        }
        let terms = self.terms.iter().map(|(powers, factor)| (powers.clone(), factor / divisor));
        Some(Self { terms: terms.collect() })
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        let mut terms: Vec<_> = self.terms.iter().collect();
        // higher degrees first, the number last
        terms.sort_by_key(|(powers, _)| std::cmp::Reverse(powers.values().sum::<u32>()));
        for (index, (powers, factor)) in terms.into_iter().enumerate() {
            let sign = match (index, *factor < 0) {
                (0, true) => "-",
                (0, false) => "",
                (_, true) => " - ",
                (_, false) => " + ",
            };
            f.write_str(sign)?;
            let mut parts = Vec::new();
            if factor.unsigned_abs() != 1 || powers.is_empty() {
                parts.push(factor.unsigned_abs().to_string());
            }
            for (name, power) in powers {
                parts.extend((0..*power).map(|_| name.clone()));
            }
            f.write_str(&parts.join(" * "))?;
        }
        Ok(())
    }
}

impl Case {
    /// The case without conditions in which `name` is what `expression` says.
    pub fn put(&mut self, name: &str, expression: &Expression) -> Option<()> {
        let sum = self.sum(expression)?;
        self.given.insert(name.to_owned(), sum);
        Some(())
    }

    /// An expression as a polynomial.
    pub fn sum(&self, expression: &Expression) -> Option<Sum> {
        sum(expression.tree(), &self.given)
    }

    /// The length of a strip as a polynomial; `None` where a condition is not decided in this case.
    pub fn length(&self, strip: &Strip) -> Option<Sum> {
        self.items(strip.items())
    }

    fn items(&self, items: &[Item]) -> Option<Sum> {
        let mut length = Sum::default();
        for item in items {
            let step = match item {
                Item::Token(_) | Item::Row | Item::Vector(_) => Sum::constant(1),
                Item::Literal(name) => Sum::name(name),
                Item::Repeat { count, separator, body, .. } => {
                    let count = self.sum(count)?;
                    let gaps = extreme(&count.minus(&Sum::constant(1))?, &Sum::default(), "max")?;
                    let separators = self.items(separator)?;
                    let body = count.times(&self.items(body)?)?;
                    body.plus(&if separators.is_zero() {
                        Sum::default()
                    } else {
                        gaps.times(&separators)?
                    })?
                }
                Item::Choose { condition, then, otherwise } => {
                    let chosen = self.chosen.get(condition.text())?;
                    self.items(if *chosen { then } else { otherwise })?
                }
            };
            length = length.plus(&step)?;
        }
        Some(length)
    }
}

/// Every outcome of a strip's conditions within `bounds`; `None` where there are too many.
pub fn cases(strip: &Strip, bounds: &Bounds) -> Option<Vec<Case>> {
    let conditions = strip.conditions();
    if conditions.len() > CONDITION_LIMIT {
        return None;
    }
    let mut cases = Vec::new();
    'outcomes: for outcome in 0_u32..1 << conditions.len() {
        let mut bounds = bounds.clone();
        let mut chosen = BTreeMap::new();
        for (index, condition) in conditions.iter().enumerate() {
            let holds = outcome >> index & 1 == 1;
            if !restrict(&mut bounds, condition.tree(), holds) {
                continue 'outcomes;
            }
            chosen.insert(condition.text().to_owned(), holds);
        }
        let mut given = BTreeMap::new();
        for (name, least) in &bounds.least {
            let value = match bounds.most.get(name) {
                Some(most) if most < least => continue 'outcomes,
                Some(most) if most == least => Sum::constant(*least),
                _ => Sum::name(name).plus(&Sum::constant(*least))?,
            };
            given.insert(name.clone(), value);
        }
        let mut case = Case { given, chosen };
        for (name, expression) in &bounds.derived {
            case.put(name, expression)?;
        }
        cases.push(case);
    }
    Some(cases)
}

/// Narrows `bounds` by a condition on one name, which holds or not; `false` where it cannot be so.
fn restrict(bounds: &mut Bounds, condition: &Node, holds: bool) -> bool {
    let operands = condition.children();
    let (name, operator, number) = match (condition.operator(), operands) {
        (Operator::RootNode, [only]) => return restrict(bounds, only, holds),
        (Operator::Not, [only]) => return restrict(bounds, only, !holds),
        (Operator::VariableIdentifierRead { identifier }, []) => (identifier, &Operator::Neq, 0),
        (operator, [left, right]) => match (left.operator(), right.operator()) {
            (
                Operator::VariableIdentifierRead { identifier },
                Operator::Const { value: Value::Int(number) },
            ) => (identifier, operator, *number),
            _ => return true,
        },
        _ => return true,
    };
    if bounds.derived.contains_key(name) || name.contains('.') {
        return true;
    }
    let least = bounds.least.get(name).copied().unwrap_or(0);
    let most = bounds.most.get(name).copied().unwrap_or(i64::MAX);
    // (the least, the greatest) where the condition holds as it is read here
    let (low, high) = match (operator, holds) {
        (Operator::Eq, true) | (Operator::Neq, false) => (number, number),
        (Operator::Eq, false) | (Operator::Neq, true) => (
            if least == number { number + 1 } else { least },
            if most == number { number - 1 } else { most },
        ),
        (Operator::Gt, true) | (Operator::Leq, false) => (number + 1, most),
        (Operator::Gt, false) | (Operator::Leq, true) => (least, number),
        (Operator::Geq, true) | (Operator::Lt, false) => (number, most),
        (Operator::Geq, false) | (Operator::Lt, true) => (least, number - 1),
        _ => return true,
    };
    let (low, high) = (low.max(least), high.min(most));
    let mut set = |name: &str| {
        bounds.least.insert(name.to_owned(), low);
        if high < i64::MAX {
            bounds.most.insert(name.to_owned(), high);
        }
    };
    set(name);
    for pair in bounds.together.clone() {
        let other = match pair {
            [first, second] if first == name => second,
            [first, second] if second == name => first,
            _ => continue,
        };
        if high == 0 {
            bounds.most.insert(other.to_owned(), 0);
            bounds.least.insert(other.to_owned(), 0);
        } else if low > 0 {
            let least = bounds.least.entry(other.to_owned()).or_insert(0);
            *least = (*least).max(1);
        }
    }
    low <= high
}

fn sum(node: &Node, given: &BTreeMap<String, Sum>) -> Option<Sum> {
    let children = node.children();
    let one = |index: usize| sum(children.get(index)?, given);
    match (node.operator(), children.len()) {
        (Operator::RootNode, 1) => one(0),
        (Operator::Const { value: Value::Int(number) }, 0) => Some(Sum::constant(*number)),
        (Operator::VariableIdentifierRead { identifier }, 0) => {
            Some(given.get(identifier).cloned().unwrap_or_else(|| Sum::name(identifier)))
        }
        (Operator::Add, 2) => one(0)?.plus(&one(1)?),
        (Operator::Sub, 2) => one(0)?.minus(&one(1)?),
        (Operator::Neg, 1) => Sum::default().minus(&one(0)?),
        (Operator::Mul, 2) => one(0)?.times(&one(1)?),
        (Operator::Div, 2) => Some(quotient(&one(0)?, &one(1)?, "/")),
        (Operator::Mod, 2) => Some(Sum::name(&format!("({} % {})", one(0)?, one(1)?))),
        (Operator::FunctionIdentifier { identifier }, 1) => {
            let [arguments] = children else { return None };
            let arguments = match arguments.children() {
                [tuple] if *tuple.operator() == Operator::Tuple => tuple.children(),
                other => other,
            };
            let arguments: Option<Vec<_>> =
                arguments.iter().map(|argument| sum(argument, given)).collect();
            call(identifier, &arguments?)
        }
        _ => None,
    }
}

fn call(function: &str, arguments: &[Sum]) -> Option<Sum> {
    match (function, arguments) {
        // one name may stand for a list
        ("min" | "max", [first, rest @ ..]) if !rest.is_empty() => {
            rest.iter().try_fold(first.clone(), |reached, next| extreme(&reached, next, function))
        }
        ("div_floor" | "div_ceil", [numerator, denominator]) => {
            Some(quotient(numerator, denominator, function))
        }
        ("isqrt", [only]) => match only.as_constant().map(i64::checked_isqrt) {
            Some(root) => root.map(Sum::constant),
            None => Some(Sum::name(&format!("isqrt({only})"))),
        },
        (_, [only]) => Some(Sum::name(&format!("{function}({only})"))),
        _ => None,
    }
}

/// The lesser or the greater of two.
fn extreme(left: &Sum, right: &Sum, function: &str) -> Option<Sum> {
    let (greater, lesser) = if left.minus(right)?.rises_from_zero() {
        (left, right)
    } else if right.minus(left)?.rises_from_zero() {
        (right, left)
    } else {
        let mut both = [left.to_string(), right.to_string()];
        both.sort();
        return Some(Sum::name(&format!("{function}({}, {})", both[0], both[1])));
    };
    Some(if function == "max" { greater.clone() } else { lesser.clone() })
}

fn quotient(numerator: &Sum, denominator: &Sum, how: &str) -> Sum {
    if let Some(divided) = denominator.as_constant().and_then(|number| numerator.divided(number)) {
        return divided;
    }
    Sum::name(&match how {
        "/" => format!("({numerator} / {denominator})"),
        _ => format!("{how}({numerator}, {denominator})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(least: &[(&str, i64)]) -> Bounds {
        Bounds {
            least: least.iter().map(|(name, least)| ((*name).to_owned(), *least)).collect(),
            together: vec![["rows", "cols"]],
            ..Bounds::default()
        }
    }

    fn equal(strip: &str, formula: &str, bounds: &Bounds) -> bool {
        let (strip, formula) = (Strip::parse(strip).unwrap(), Expression::parse(formula).unwrap());
        cases(&strip, bounds).unwrap().iter().all(|case| case.length(&strip) == case.sum(&formula))
    }

    #[test]
    fn strips_equal_their_formulas() {
        let one = bounds(&[("rows", 1), ("cols", 1)]);
        let none = bounds(&[("rows", 0), ("cols", 0)]);
        assert!(equal("[rows; <break>: [cols: *]] <end>", "rows * (cols + 1)", &one));
        assert!(!equal("[rows; <break>: [cols: *]] <end>", "rows * (cols + 1)", &none));
        assert!(!equal("[rows; <break>: [cols: *]] <end>", "rows * cols + cols", &one));
        assert!(equal(
            "(rows == 0 ? : [rows: [cols: *] \"line\"] <end>)",
            "rows * (cols + line) + min(rows, 1)",
            &none
        ));
        assert!(!equal("(rows == 0 ? : [rows: [cols: *] \"line\"])", "rows * cols + line", &none));
        assert!(equal("(a.b == 2 ? <x> : <y>) [a.c / 4: *]", "a.c / 4 + 1", &none));
        assert!(!equal("(a.b == 2 ? <x> : )", "1", &none));
        assert!(equal("(rows > 0 ? [rows - 1: *] : )", "max(rows - 1, 0)", &none));
        assert!(equal("[6 * rows / 3: *]", "div_ceil(2 * rows, 1)", &none));
    }

    #[test]
    fn polynomials_are_readable() {
        let text = "2 * rows * (cols + 1) - a.b * a.b - 3 + min(rows, cols)";
        let sum = Case::default().sum(&Expression::parse(text).unwrap()).unwrap();
        assert_eq!(
            sum.to_string(),
            "-a.b * a.b + 2 * cols * rows + min(cols, rows) + 2 * rows - 3"
        );
        assert!(!sum.is_plain());
        let names: Vec<_> = sum.names().into_iter().collect();
        assert_eq!(names, ["a.b", "cols", "rows"]);
    }
}
