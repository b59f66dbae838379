//! Checked integer expressions: parsed and evaluated by evalexpr behind an allow-list.
//!
//! Allowed are `+ - * / %`, comparisons, `&& || !`, parentheses, integers, `true`, `false`, names, and the functions of
//! [`FUNCTIONS`]. Unintuitive facts of the evaluator that this module guards against:
//!
//! * `/` truncates toward zero. It is accepted only where the numerator holds no `-`; elsewhere write `div_floor(a, b)`.
//! * An integer literal that does not fit 64 bits silently becomes a float. Floats are refused.
//! * `//` and `/*` begin comments: `rows // 2` would be `rows`. They are refused.
//! * `^`, assignment, chains and the evaluator's own functions would all parse. They are refused.
//! * The parser recurses: text is limited to [`LENGTH_LIMIT`] bytes and [`NESTING_LIMIT`] open parentheses first.

use std::collections::BTreeMap;
use std::fmt;

use evalexpr::{
    ContextWithMutableFunctions, ContextWithMutableVariables, EvalexprError, Function,
    HashMapContext, Node, Operator, Value, build_operator_tree,
};

use super::grammar;
pub use super::grammar::{FUNCTIONS, Kind, LENGTH_LIMIT, NESTING_LIMIT};

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// An integer.
    Integer(i64),
    /// A truth value.
    Boolean(bool),
    /// A list of integers; only `len`, `min` and `max` take one.
    List(Vec<i64>),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Boolean(flag) => write!(f, "{flag}"),
            Self::List(items) => write!(f, "{items:?}"),
        }
    }
}

/// Why an expression cannot be parsed or evaluated, with the expression and its bindings where there are any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// One line, lower case.
    pub message: String,
    /// Advice.
    pub hint: Option<String>,
}

impl ExpressionError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }
}

/// A parsed expression.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    tree: Node,
    names: Vec<String>,
    kind: Kind,
}

impl Expression {
    /// Parses `text` and refuses everything that the module does not allow.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        grammar::guard(text)?;
        let tree = build_operator_tree(text).map_err(|error| grammar::syntax(text, &error))?;
        let mut names = Vec::new();
        let kind = grammar::inspect(&tree, text, &mut names)?;
        Ok(Self { text: text.to_owned(), tree, names, kind })
    }

    /// What it gives, as far as its form tells.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names it reads, each once, in order of appearance.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The parsed form, in which every node is allowed.
    pub(super) fn tree(&self) -> &Node {
        &self.tree
    }

    /// Evaluates to an integer.
    pub fn integer(&self, bindings: &BTreeMap<String, Bound>) -> Result<i64, ExpressionError> {
        match self.value(bindings)? {
            Value::Int(number) => Ok(number),
            other => {
                Err(self.failure(&format!("gives {}, not an integer", kind_of(&other)), bindings))
            }
        }
    }

    /// Evaluates to a truth value; a name that stands alone is true if its integer is not 0.
    pub fn truth(&self, bindings: &BTreeMap<String, Bound>) -> Result<bool, ExpressionError> {
        match self.value(bindings)? {
            Value::Boolean(flag) => Ok(flag),
            Value::Int(number) if self.kind() == Kind::Name => Ok(number != 0),
            other => {
                Err(self
                    .failure(&format!("gives {}, not a truth value", kind_of(&other)), bindings))
            }
        }
    }

    fn value(&self, bindings: &BTreeMap<String, Bound>) -> Result<Value, ExpressionError> {
        let mut context = HashMapContext::new();
        let prepared = evalexpr::Context::set_builtin_functions_disabled(&mut context, true)
            .and_then(|()| add_functions(&mut context));
        if let Err(error) = prepared {
            return Err(self.failure(&error.to_string(), bindings));
        }
        for name in &self.names {
            let Some(bound) = bindings.get(name) else {
                return Err(self.failure(&format!("reads `{name}`, which has no value"), bindings));
            };
            let value = match bound {
                Bound::Integer(number) => Value::Int(*number),
                Bound::Boolean(flag) => Value::Boolean(*flag),
                Bound::List(items) => {
                    Value::Tuple(items.iter().map(|item| Value::Int(*item)).collect())
                }
            };
            context
                .set_value(name.clone(), value)
                .map_err(|error| self.failure(&error.to_string(), bindings))?;
        }
        self.tree
            .eval_with_context(&context)
            .map_err(|error| self.failure(&reason(&error), bindings))
    }

    fn failure(&self, what: &str, bindings: &BTreeMap<String, Bound>) -> ExpressionError {
        let with: Vec<_> = self
            .names
            .iter()
            .filter_map(|name| bindings.get(name).map(|bound| format!("{name} = {bound}")))
            .collect();
        let with =
            if with.is_empty() { String::new() } else { format!(" with {}", with.join(", ")) };
        ExpressionError::new(format!("`{}` {what}{with}", self.text))
    }

    /// The expression as a polynomial in the `free` names, all others bound: powers of the free names → coefficient.
    /// `None` where it is not built of `+`, `-` and `*` alone.
    pub fn polynomial(
        &self,
        free: &[&str],
        bindings: &BTreeMap<String, Bound>,
    ) -> Option<BTreeMap<Vec<u32>, i64>> {
        polynomial(&self.tree, free, bindings)
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Int(_) => "an integer",
        Value::Boolean(_) => "a truth value",
        Value::Tuple(_) => "a list",
        _ => "nothing",
    }
}

fn reason(error: &EvalexprError) -> String {
    match error {
        EvalexprError::AdditionError { .. }
        | EvalexprError::SubtractionError { .. }
        | EvalexprError::MultiplicationError { .. }
        | EvalexprError::NegationError { .. } => "overflows 64 bits".to_owned(),
        EvalexprError::DivisionError { .. } | EvalexprError::ModulationError { .. } => {
            "divides by zero or overflows".to_owned()
        }
        EvalexprError::CustomMessage(message) => message.clone(),
        other => format!("fails: {other}"),
    }
}

fn add_functions(context: &mut HashMapContext) -> Result<(), EvalexprError> {
    let failed = |message: &str| EvalexprError::CustomMessage(message.to_owned());
    let integers = move |value: &Value| -> Result<Vec<i64>, EvalexprError> {
        let items = match value {
            Value::Tuple(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        let mut flat = Vec::new();
        for item in items {
            match item {
                Value::Int(number) => flat.push(*number),
                Value::Tuple(inner) => {
                    for item in inner {
                        flat.push(item.as_int()?);
                    }
                }
                _ => return Err(failed("calls a function with something that is not an integer")),
            }
        }
        Ok(flat)
    };
    let pair = move |value: &Value| -> Result<(i64, i64), EvalexprError> {
        match integers(value)?[..] {
            [first, second] => Ok((first, second)),
            _ => Err(failed("calls a function of two arguments with another number of them")),
        }
    };
    context.set_function(
        "min".into(),
        Function::new(move |value| {
            integers(value)?
                .into_iter()
                .min()
                .map(Value::Int)
                .ok_or_else(|| failed("takes `min` of nothing"))
        }),
    )?;
    context.set_function(
        "max".into(),
        Function::new(move |value| {
            integers(value)?
                .into_iter()
                .max()
                .map(Value::Int)
                .ok_or_else(|| failed("takes `max` of nothing"))
        }),
    )?;
    context.set_function(
        "div_floor".into(),
        Function::new(move |value| {
            let (numerator, denominator) = pair(value)?;
            let truncated = numerator
                .checked_div(denominator)
                .ok_or_else(|| failed("divides by zero or overflows"))?;
            let inexact = numerator % denominator != 0;
            Ok(Value::Int(truncated - i64::from(inexact && (numerator < 0) != (denominator < 0))))
        }),
    )?;
    context.set_function(
        "div_ceil".into(),
        Function::new(move |value| {
            let (numerator, denominator) = pair(value)?;
            let truncated = numerator
                .checked_div(denominator)
                .ok_or_else(|| failed("divides by zero or overflows"))?;
            let inexact = numerator % denominator != 0;
            Ok(Value::Int(truncated + i64::from(inexact && (numerator < 0) == (denominator < 0))))
        }),
    )?;
    context.set_function(
        "isqrt".into(),
        Function::new(move |value| {
            value
                .as_int()?
                .checked_isqrt()
                .map(Value::Int)
                .ok_or_else(|| failed("takes the root of a negative number"))
        }),
    )?;
    context.set_function(
        "len".into(),
        Function::new(move |value| {
            let length = integers(value)?.len();
            i64::try_from(length).map(Value::Int).map_err(|_| failed("overflows 64 bits"))
        }),
    )
}

fn polynomial(
    node: &Node,
    free: &[&str],
    bindings: &BTreeMap<String, Bound>,
) -> Option<BTreeMap<Vec<u32>, i64>> {
    let constant = |number: i64| Some(BTreeMap::from([(vec![0; free.len()], number)]));
    let operands: Option<Vec<_>> =
        node.children().iter().map(|child| polynomial(child, free, bindings)).collect();
    match (node.operator(), operands?.as_slice()) {
        (Operator::RootNode, [only]) => Some(only.clone()),
        (Operator::Const { value: Value::Int(number) }, []) => constant(*number),
        (Operator::VariableIdentifierRead { identifier }, []) => {
            if let Some(index) = free.iter().position(|name| name == identifier) {
                let mut powers = vec![0; free.len()];
                powers[index] = 1;
                return Some(BTreeMap::from([(powers, 1)]));
            }
            match bindings.get(identifier)? {
                Bound::Integer(number) => constant(*number),
                _ => None,
            }
        }
        (Operator::Add, [left, right]) => combine(left, right, 1),
        (Operator::Sub, [left, right]) => combine(left, right, -1),
        (Operator::Mul, [left, right]) => {
            let mut product = BTreeMap::new();
            for (left_powers, left_factor) in left {
                for (right_powers, right_factor) in right {
                    let powers = left_powers
                        .iter()
                        .zip(right_powers)
                        .map(|(a, b)| a + b)
                        .collect::<Vec<_>>();
                    let slot: &mut i64 = product.entry(powers).or_insert(0);
                    *slot = slot.checked_add(left_factor.checked_mul(*right_factor)?)?;
                }
            }
            Some(product)
        }
        _ => None,
    }
}

fn combine(
    left: &BTreeMap<Vec<u32>, i64>,
    right: &BTreeMap<Vec<u32>, i64>,
    sign: i64,
) -> Option<BTreeMap<Vec<u32>, i64>> {
    let mut sum = left.clone();
    for (powers, factor) in right {
        let slot = sum.entry(powers.clone()).or_insert(0);
        *slot = slot.checked_add(factor.checked_mul(sign)?)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bindings() -> BTreeMap<String, Bound> {
        BTreeMap::from([
            ("rows".to_owned(), Bound::Integer(3)),
            ("cols".to_owned(), Bound::Integer(5)),
            ("vision.patch".to_owned(), Bound::Integer(14)),
            ("vision.taps".to_owned(), Bound::List(vec![-2, -1, 4])),
            ("most".to_owned(), Bound::Integer(i64::MAX)),
        ])
    }

    fn integer(text: &str) -> Result<i64, String> {
        Expression::parse(text)
            .and_then(|expression| expression.integer(&bindings()))
            .map_err(|error| error.message)
    }

    #[test]
    fn evaluates_what_descriptors_need() {
        let cases = [
            ("rows * (cols + 1)", 18),
            ("336 / vision.patch", 24),
            ("7 % 4", 3),
            ("div_floor(rows - cols, 2)", -1),
            ("div_ceil(rows - cols, 2)", -1),
            ("div_ceil(7, 2)", 4),
            ("div_floor(-7, 2)", -4),
            ("isqrt(80)", 8),
            ("len(vision.taps)", 3),
            ("len(rows)", 1),
            ("max(rows, cols, 4)", 5),
            ("min(vision.taps)", -2),
            ("max(rows * 2, 1) - 1", 5),
        ];
        for (text, expected) in cases {
            assert_eq!(integer(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        let refused = [
            "",
            "  ",
            "1;2",
            "a = 1",
            "2^10",
            "1.5",
            "9223372036854775808",
            "\"x\"",
            "str::from(1)",
            "math::pow(1,2)",
            "if(true,1,2)",
            "(1, 2)",
            "1,",
            "()",
            "rows - 1 / 0 - (",
            "(rows - 1) / 2",
            "-rows / 2",
            "floor(1)",
            "unknown",
            "rows && 1",
            "rows + true",
            "1 / 0",
            "1 % 0",
            "most + 1",
            "most * 2",
            "isqrt(0 - 4)",
            "div_floor(1, 0)",
            "div_floor(1)",
            "rows == 3",
            "shl(1, 64)",
            "rows // 2",
            "rows /* 2 */",
            "rows +",
            "* rows",
            "rows cols",
            "min rows",
            "isqrt(1, 2)",
            "rows < cols < 3",
            "!1",
            "min(true)",
            "[rows]",
            "rows..cols",
            "1_000",
        ];
        for text in refused {
            assert!(integer(text).is_err(), "{text} gave {:?}", integer(text));
        }
        assert!(Expression::parse(&"(".repeat(5000)).is_err());
        assert!(Expression::parse(&"-".repeat(500)).is_err());
        assert!(Expression::parse(&format!("1{}", "+1".repeat(400))).is_err());
    }

    #[test]
    fn failures_show_expression_and_bindings() {
        assert_eq!(
            integer("rows * most").unwrap_err(),
            format!("`rows * most` overflows 64 bits with rows = 3, most = {}", i64::MAX)
        );
        assert_eq!(
            integer("rows / 0").unwrap_err(),
            "`rows / 0` divides by zero or overflows with rows = 3"
        );
    }

    #[test]
    fn polynomials() {
        let expression = Expression::parse("rows * (cols + 1) + vision.patch - 1").unwrap();
        let polynomial = expression.polynomial(&["rows", "cols"], &bindings()).unwrap();
        assert_eq!(
            polynomial,
            BTreeMap::from([(vec![0, 0], 13), (vec![1, 0], 1), (vec![1, 1], 1)])
        );
        assert!(
            Expression::parse("max(rows, cols)")
                .unwrap()
                .polynomial(&["rows"], &bindings())
                .is_none()
        );
    }
}
