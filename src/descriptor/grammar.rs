//! What an expression may hold: the allow-list that stands between the evaluator's parser and family files.

use evalexpr::{EvalexprError, Node, Operator, Value};

use super::expression::ExpressionError;
use super::library::nearest;

/// The longest expression, in bytes.
pub const LENGTH_LIMIT: usize = 1024;
/// The deepest nesting of parentheses and prefix operators.
pub const NESTING_LIMIT: usize = 32;
/// The functions an expression may call.
pub const FUNCTIONS: [&str; 6] = ["min", "max", "div_floor", "div_ceil", "isqrt", "len"];

const OPERATORS: &str = "use + - * / %, comparisons, && || !";

/// What an expression gives, as far as its form tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Integer,
    /// A truth value.
    Truth,
    /// Whatever the name that it consists of stands for.
    Name,
}

impl Kind {
    /// In words, with the article.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Integer => "an integer",
            Self::Truth => "a truth value",
            Self::Name => "a name",
        }
    }
}

fn error(text: &str, what: &str) -> ExpressionError {
    ExpressionError { message: format!("`{text}` {what}"), hint: None }
}

fn hinted(text: &str, what: &str, hint: &str) -> ExpressionError {
    ExpressionError { message: format!("`{text}` {what}"), hint: Some(hint.to_owned()) }
}

/// Refuses what must not even reach the parser: it recurses, and it knows comments.
pub(super) fn guard(text: &str) -> Result<(), ExpressionError> {
    let plain = |message: String| Err(ExpressionError { message, hint: None });
    if text.len() > LENGTH_LIMIT {
        return plain(format!("expression is longer than {LENGTH_LIMIT} bytes"));
    }
    if text.trim().is_empty() {
        return plain("expression is empty".to_owned());
    }
    let (mut depth, mut prefixes) = (0_usize, 0_usize);
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        prefixes = match character {
            '-' | '!' => prefixes + 1,
            ' ' => prefixes,
            _ => 0,
        };
        if depth > NESTING_LIMIT || prefixes > NESTING_LIMIT {
            return plain(format!("expression is nested deeper than {NESTING_LIMIT}"));
        }
    }
    let terms = text.chars().filter(|character| "+-*/%=<>&|!".contains(*character)).count();
    if terms > 4 * NESTING_LIMIT {
        return plain(format!("expression has more than {} operators", 4 * NESTING_LIMIT));
    }
    if text.contains("//") {
        return Err(hinted(text, "holds `//`, which is no operator", "write `div_floor(a, b)`"));
    }
    if text.contains("/*") {
        return Err(error(text, "holds a comment"));
    }
    Ok(())
}

/// The parser's complaint in our words.
pub(super) fn syntax(text: &str, cause: &EvalexprError) -> ExpressionError {
    match cause {
        EvalexprError::UnmatchedLBrace => error(text, "lacks a `)`"),
        EvalexprError::UnmatchedRBrace => error(text, "lacks a `(`"),
        EvalexprError::UnmatchedPartialToken { first, .. } => {
            hinted(text, &format!("holds a lone `{first}`"), OPERATORS)
        }
        EvalexprError::UnmatchedDoubleQuote => strings(text),
        EvalexprError::AppendedToLeafNode | EvalexprError::MissingOperatorOutsideOfBrace => {
            error(text, "lacks an operator between two values")
        }
        other => {
            let reason = other.to_string();
            error(
                text,
                &format!("is not an expression ({})", reason.trim_end_matches('.').to_lowercase()),
            )
        }
    }
}

fn strings(text: &str) -> ExpressionError {
    hinted(
        text,
        "holds a string",
        "words of config files become integers or members through a `map` beside the lookup",
    )
}

/// Refuses everything that the module does not allow, collects the names, and says what the expression gives.
pub(super) fn inspect(
    node: &Node,
    text: &str,
    names: &mut Vec<String>,
) -> Result<Kind, ExpressionError> {
    match node.operator() {
        Operator::RootNode => match node.children() {
            [only] => inspect(only, text, names),
            _ => Err(error(text, "has an empty part")),
        },
        Operator::Add | Operator::Sub | Operator::Mul | Operator::Mod => {
            operands(node, text, 2, Some(Kind::Integer), names)?;
            Ok(Kind::Integer)
        }
        Operator::Div => {
            operands(node, text, 2, Some(Kind::Integer), names)?;
            if node.children().first().is_some_and(subtracts) {
                return Err(hinted(
                    text,
                    "divides a difference with `/`, which truncates toward zero",
                    "write `div_floor(a, b)` or `div_ceil(a, b)`",
                ));
            }
            Ok(Kind::Integer)
        }
        Operator::Neg => {
            operands(node, text, 1, Some(Kind::Integer), names)?;
            Ok(Kind::Integer)
        }
        Operator::Gt | Operator::Lt | Operator::Geq | Operator::Leq => {
            operands(node, text, 2, Some(Kind::Integer), names)?;
            Ok(Kind::Truth)
        }
        Operator::Eq | Operator::Neq => {
            operands(node, text, 2, None, names)?;
            Ok(Kind::Truth)
        }
        Operator::And | Operator::Or => {
            operands(node, text, 2, Some(Kind::Truth), names)?;
            Ok(Kind::Truth)
        }
        Operator::Not => {
            operands(node, text, 1, Some(Kind::Truth), names)?;
            Ok(Kind::Truth)
        }
        Operator::Tuple => Err(error(text, "has a `,` outside a call")),
        Operator::Const { value } => match value {
            Value::Int(_) => Ok(Kind::Integer),
            Value::Boolean(_) => Ok(Kind::Truth),
            Value::Float(_) => Err(error(text, "holds a number that is not a 64-bit integer")),
            _ => Err(strings(text)),
        },
        Operator::VariableIdentifierRead { identifier } => {
            name(identifier, text)?;
            if !names.contains(identifier) {
                names.push(identifier.clone());
            }
            Ok(Kind::Name)
        }
        Operator::FunctionIdentifier { identifier } => call(node, identifier, text, names),
        _ => Err(hinted(text, "uses an operator that is not allowed", OPERATORS)),
    }
}

/// Inspects `count` operands, each of `kind` where one is wanted.
fn operands(
    node: &Node,
    text: &str,
    count: usize,
    kind: Option<Kind>,
    names: &mut Vec<String>,
) -> Result<(), ExpressionError> {
    if node.children().len() != count {
        return Err(error(
            text,
            &format!("lacks an operand of `{}`", node.operator().to_string().trim()),
        ));
    }
    for child in node.children() {
        let found = inspect(child, text, names)?;
        if let Some(kind) = kind
            && found != kind
            && found != Kind::Name
        {
            let operator = node.operator().to_string();
            return Err(error(
                text,
                &format!(
                    "gives {} to `{}`, which takes {}",
                    found.words(),
                    operator.trim(),
                    kind.words()
                ),
            ));
        }
    }
    Ok(())
}

fn call(
    node: &Node,
    function: &str,
    text: &str,
    names: &mut Vec<String>,
) -> Result<Kind, ExpressionError> {
    let [arguments] = node.children() else { return Err(error(text, "has an empty part")) };
    if *arguments.operator() != Operator::RootNode {
        return Err(error(text, &format!("lacks an operator after `{function}`")));
    }
    if !FUNCTIONS.contains(&function) {
        let known = format!("the functions are `{}`", FUNCTIONS.join("`, `"));
        let hint =
            nearest(function, FUNCTIONS).map_or(known, |near| format!("did you mean `{near}`?"));
        return Err(hinted(
            text,
            &format!("calls `{function}`, which is not a function here"),
            &hint,
        ));
    }
    let arguments = match arguments.children() {
        [tuple] if *tuple.operator() == Operator::Tuple => tuple.children(),
        other => other,
    };
    let wanted = match function {
        "isqrt" | "len" => 1..=1,
        "div_floor" | "div_ceil" => 2..=2,
        _ => 1..=usize::MAX,
    };
    if !wanted.contains(&arguments.len()) {
        let wanted = match function {
            "div_floor" | "div_ceil" => "two",
            "isqrt" | "len" => "one",
            _ => "at least one",
        };
        let what =
            format!("calls `{function}` with another number of arguments: it takes {wanted}");
        return Err(error(text, &what));
    }
    for argument in arguments {
        if inspect(argument, text, names)? == Kind::Truth {
            return Err(error(
                text,
                &format!("gives a truth value to `{function}`, which takes integers"),
            ));
        }
    }
    Ok(Kind::Integer)
}

/// A name is letters, digits and `_`, in two parts with a dot between them, or one.
fn name(identifier: &str, text: &str) -> Result<(), ExpressionError> {
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (section, entry) = identifier.split_once('.').unwrap_or((identifier, "_"));
    if plain(section) && plain(entry) {
        return Ok(());
    }
    if identifier == text.trim() {
        return Err(error(text, "is neither a name nor an integer"));
    }
    Err(error(text, &format!("holds `{identifier}`, which is neither a name nor an integer")))
}

fn subtracts(node: &Node) -> bool {
    let subtracts_itself = match node.operator() {
        Operator::Sub | Operator::Neg => true,
        Operator::Const { value: Value::Int(number) } => *number < 0,
        _ => false,
    };
    subtracts_itself || node.children().iter().any(subtracts)
}
