//! The normal form of a script. Two texts have the same one if they differ only in comments,
//! blanks, semicolons, quotes, the names of local variables, and the case of commands and options.
//!
//! The form is a list of tokens, and only its hash is kept. A local variable is known by the place
//! of its declaration, so the form has to follow blocks. It needs no parser for that. Keywords and
//! symbols are part of the form, so a text with the form of a published script has its blocks where
//! that script has them, and opening and closing blocks must be right for published scripts only.
//! For the same reason a variable counts as declared from its name on, though Lua waits for the end
//! of the statement: no published script uses a name in its own declaration.

use super::token::{NotLua, Token, Tokens};
use hashbrown::HashMap;
use sha2::{Digest, Sha256};

/// Longer texts have no normal form. The longest published lock script has less than a thirtieth of
/// this.
pub(super) const SCRIPT_BYTES_MAX: usize = 64 * 1024;

/// The hash of a normal form.
pub(super) type Form = u128;

/// Options that Redis reads in either case.
const OPTIONS: [&[u8]; 4] = [b"nx", b"xx", b"px", b"ex"];

const KEYWORDS: [&[u8]; 21] = [
    b"and",
    b"break",
    b"do",
    b"else",
    b"elseif",
    b"end",
    b"false",
    b"for",
    b"function",
    b"if",
    b"in",
    b"local",
    b"nil",
    b"not",
    b"or",
    b"repeat",
    b"return",
    b"then",
    b"true",
    b"until",
    b"while",
];

/// The hash of the text's normal form; `None` if it has none.
pub(super) fn form(text: &[u8]) -> Option<Form> {
    if text.len() > SCRIPT_BYTES_MAX {
        return None;
    }
    let mut normaliser = Normaliser::default();
    let mut tokens = Tokens::new(text);
    loop {
        match tokens.next() {
            Ok(Some(token)) => normaliser.take(token).ok()?,
            Ok(None) => return normaliser.finish(),
            Err(NotLua) => return None,
        }
    }
}

#[derive(Default)]
struct Normaliser<'a> {
    hash: Sha256,
    scopes: Scopes<'a>,
    naming: Naming,
    call: Call,
    /// The next word follows a dot or a colon: it names a field, not a variable.
    is_field: bool,
    /// The head of a `for` has opened the scope that its `do` would open.
    is_loop_open: bool,
}

/// Whether the next word is a name that is being declared.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Naming {
    #[default]
    No,
    /// Behind `local`: a variable, or the word `function`.
    Local,
    /// Behind `local function`: its name.
    Function,
    /// Behind the name of a variable: a comma brings another one.
    Comma,
    /// Behind `function`, up to the bracket: part of its name, if it has one.
    Head,
    /// Between the brackets of a function.
    Parameters,
}

/// How much of `redis.call(` has been read.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Call {
    #[default]
    Nothing,
    Redis,
    Dot,
    Name,
    Open,
}

impl<'a> Normaliser<'a> {
    fn take(&mut self, token: Token<'a>) -> Result<(), NotLua> {
        let call = std::mem::take(&mut self.call);
        let is_field = std::mem::take(&mut self.is_field);
        match token {
            Token::Symbol(b";") => {
                // It ends a list of declared names, and is not part of the form.
                self.naming = Naming::No;
            }
            Token::Symbol(symbol) => {
                self.is_field = matches!(symbol, b"." | b":");
                self.call = match (call, symbol) {
                    (Call::Redis, b".") => Call::Dot,
                    (Call::Name, b"(") => Call::Open,
                    _ => Call::Nothing,
                };
                self.naming = match (self.naming, symbol) {
                    (Naming::Comma, b",") => Naming::Local,
                    (Naming::Head, b"(") | (Naming::Parameters, b",") => Naming::Parameters,
                    (Naming::Head, b"." | b":") => Naming::Head,
                    _ => Naming::No,
                };
                self.feed(b's', symbol);
            }
            Token::Number(number) => {
                self.naming = Naming::No;
                self.feed(b'n', number);
            }
            Token::Text(text) => {
                self.naming = Naming::No;
                let is_option = OPTIONS
                    .iter()
                    .any(|option| text.eq_ignore_ascii_case(option));
                if call == Call::Open || is_option {
                    self.feed(b't', &text.to_ascii_lowercase());
                } else {
                    self.feed(b't', &text);
                }
            }
            Token::Word(word) if KEYWORDS.contains(&word) => self.keyword(word)?,
            Token::Word(word) => self.name(word, call, is_field),
        }
        Ok(())
    }

    fn keyword(&mut self, word: &'a [u8]) -> Result<(), NotLua> {
        self.feed(b'k', word);
        let naming = std::mem::take(&mut self.naming);
        match word {
            b"then" => self.scopes.open(),
            b"elseif" => self.scopes.close()?,
            b"else" => {
                self.scopes.close()?;
                self.scopes.open();
            }
            b"end" => self.scopes.close()?,
            b"do" if self.is_loop_open => self.is_loop_open = false,
            b"do" => self.scopes.open(),
            b"for" => {
                self.scopes.open();
                self.is_loop_open = true;
                self.naming = Naming::Local;
            }
            b"local" => self.naming = Naming::Local,
            b"function" if naming == Naming::Local => self.naming = Naming::Function,
            b"function" => {
                self.scopes.open();
                self.naming = Naming::Head;
            }
            _ => {}
        }
        Ok(())
    }

    fn name(&mut self, word: &'a [u8], call: Call, is_field: bool) {
        let naming = self.naming;
        self.naming = match naming {
            Naming::Local => Naming::Comma,
            Naming::Function | Naming::Head => Naming::Head,
            Naming::Parameters => Naming::Parameters,
            Naming::No | Naming::Comma => Naming::No,
        };
        if matches!(
            naming,
            Naming::Local | Naming::Function | Naming::Parameters
        ) {
            self.scopes.declare(word);
        }
        if naming == Naming::Function {
            self.scopes.open();
        }
        if is_field {
            if call == Call::Dot && matches!(word, b"call" | b"pcall") {
                self.call = Call::Name;
            }
            self.feed(b'f', word);
        } else if let Some(number) = self.scopes.find(word) {
            self.feed(b'l', &number.to_le_bytes());
        } else {
            if word == b"redis" {
                self.call = Call::Redis;
            }
            self.feed(b'g', word);
        }
    }

    /// Hashes a token. Kind and length come first, so that one token never looks like two.
    fn feed(&mut self, kind: u8, bytes: &[u8]) {
        self.hash.update([kind]);
        self.hash.update((bytes.len() as u32).to_le_bytes());
        self.hash.update(bytes);
    }

    fn finish(self) -> Option<Form> {
        let digest = self.hash.finalize();
        let half = digest.first_chunk::<16>()?;
        Some(Form::from_be_bytes(*half))
    }
}

/// The variables that names stand for.
#[derive(Default)]
struct Scopes<'a> {
    declared: u32,
    /// The variables of each name, the innermost last.
    by_name: HashMap<&'a [u8], Vec<u32>>,
    /// The names of all scopes, those of the innermost last.
    names: Vec<&'a [u8]>,
    /// Where in `names` each scope begins. The outermost one is left out.
    begins: Vec<usize>,
}

impl<'a> Scopes<'a> {
    fn open(&mut self) {
        self.begins.push(self.names.len());
    }

    fn close(&mut self) -> Result<(), NotLua> {
        let begin = self.begins.pop().ok_or(NotLua)?;
        for name in self.names.drain(begin..) {
            if let Some(variables) = self.by_name.get_mut(name) {
                variables.pop();
            }
        }
        Ok(())
    }

    fn declare(&mut self, name: &'a [u8]) {
        self.names.push(name);
        self.by_name.entry(name).or_default().push(self.declared);
        self.declared += 1;
    }

    /// The number of the local variable that a name stands for; `None`: it is a global one.
    fn find(&self, name: &[u8]) -> Option<u32> {
        self.by_name.get(name)?.last().copied()
    }
}

#[cfg(test)]
mod tests;
