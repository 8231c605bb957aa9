//! The small language of `match`: `.` `?` `*` `|` `(` `)` and `\` before any of them; all else stands for itself.

/// Most groups of an expression.
const MAX_GROUPS: usize = 32;

/// A checked expression, as text for a regular expression engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    regex: String,
    groups: usize,
    ignore_case: bool,
}

/// What is wrong with an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// A backslash before something else, or at the end.
    #[error("a backslash stands before one of . ? * | ( ) \" or another backslash, not before {0:?}")]
    Escape(char),
    /// `\0` to `\9`, which Globus' reader lets through and Python understands.
    #[error("references back to a group (\\{0}) are no part of the language")]
    BackReference(char),
    /// A backslash at the end.
    #[error("a backslash at the end stands before nothing")]
    Unfinished,
    /// `*` or `?` at the start, behind `(`, `|` or another of them.
    #[error("{0} follows nothing that could be repeated")]
    Repeat(char),
    /// A parenthesis without its other half.
    #[error("a parenthesis is not closed, or not opened")]
    Parenthesis,
    /// Too many.
    #[error("more than 32 groups")]
    Groups,
}

impl Expression {
    /// Reads an expression.
    ///
    /// Stricter than Globus' reader: no back references, no `(?`, no repeated repetitions. Its anchors bind stronger than `|`, so that
    /// of `a|b@x` only the ends are bound there; here both branches have to fit the whole text.
    ///
    /// # Errors
    /// [`ExpressionError`]
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut regex = String::with_capacity(text.len() + 8);
        let (mut groups, mut open) = (0, 0_usize);
        let mut repeatable = false;
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                '*' | '?' if !repeatable => return Err(ExpressionError::Repeat(character)),
                '(' => (groups, open) = (groups + 1, open + 1),
                ')' => open = open.checked_sub(1).ok_or(ExpressionError::Parenthesis)?,
                _ => {}
            }
            repeatable = !matches!(character, '*' | '?' | '|' | '(');
            match character {
                '.' | '?' | '*' | '|' | '(' | ')' => regex.push(character),
                '\\' => escape(escaped(characters.next())?, &mut regex),
                plain => escape(plain, &mut regex),
            }
        }
        match (open, groups > MAX_GROUPS) {
            (_, true) => Err(ExpressionError::Groups),
            (0, _) => Ok(Self::of(&regex, groups)),
            _ => Err(ExpressionError::Parenthesis),
        }
    }

    /// The expression that this text alone fits.
    pub fn literal(text: &str) -> Self {
        let mut regex = String::with_capacity(text.len() + 8);
        text.chars().for_each(|character| escape(character, &mut regex));
        Self::of(&regex, 0)
    }

    /// The same, with capitals and small letters the same or not.
    pub fn ignoring_case(mut self, ignore: bool) -> Self {
        self.ignore_case = ignore;
        self
    }

    fn of(regex: &str, groups: usize) -> Self {
        // Grouped before it is anchored, and anchored at the very ends: a line end is not left over.
        Self { regex: format!(r"\A(?:{regex})\z"), groups, ignore_case: false }
    }

    /// The regular expression, in the syntax that the usual engines share.
    pub fn regex(&self) -> &str {
        &self.regex
    }

    /// How many groups it has.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Whether capitals and small letters are the same.
    pub fn ignores_case(&self) -> bool {
        self.ignore_case
    }
}

fn escaped(character: Option<char>) -> Result<char, ExpressionError> {
    match character {
        Some(known @ ('.' | '?' | '*' | '|' | '(' | ')' | '\\' | '"')) => Ok(known),
        Some(digit @ '0'..='9') => Err(ExpressionError::BackReference(digit)),
        Some(other) => Err(ExpressionError::Escape(other)),
        None => Err(ExpressionError::Unfinished),
    }
}

/// Writes a character that stands for itself.
fn escape(character: char, regex: &mut String) {
    if r"\.+*?()|[]{}^$#&-~".contains(character) {
        regex.push('\\');
    }
    regex.push(character);
}
