//! Lua text, one token after the other. This is as much of Lua 5.1's lexer as it takes to compare
//! two programs. A text that it refuses is no published script.

use std::borrow::Cow;

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword or a name.
    Word(&'a [u8]),
    /// A number, as it is written.
    Number(&'a [u8]),
    /// A string without its quotes, with its escapes resolved.
    Text(Cow<'a, [u8]>),
    /// Anything else, one to three bytes.
    Symbol(&'a [u8]),
}

/// The text is not Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotLua;

/// Symbols of more than one byte, longest first.
const LONG_SYMBOLS: [&[u8]; 6] = [b"...", b"..", b"==", b"~=", b"<=", b">="];

/// All symbols of one byte.
const SHORT_SYMBOLS: &[u8] = b"+-*/%^#<>=(){}[];:,.";

/// The tokens of a text. Each byte is read once, and once more where a symbol or a long bracket
/// might begin.
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Tokens { rest: text }
    }

    /// The next token; `None` behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<Token<'a>>, NotLua> {
        self.skip_blanks_and_comments()?;
        let token = match *self.rest {
            [] => return Ok(None),
            [b'"' | b'\'', ..] => self.quoted()?,
            [b'[', ..] if self.long_bracket().is_some() => Token::Text(self.bracketed()?),
            [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => Token::Number(self.number()),
            [first, ..] if is_word(first) => Token::Word(self.take_while(is_word)),
            _ => Token::Symbol(self.symbol()?),
        };
        Ok(Some(token))
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, is_wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !is_wanted(*byte));
        self.take(end.unwrap_or(self.rest.len()))
    }

    fn skip_blanks_and_comments(&mut self) -> Result<(), NotLua> {
        loop {
            self.take_while(is_blank);
            let Some(comment) = self.rest.strip_prefix(b"--") else {
                return Ok(());
            };
            self.rest = comment;
            if self.long_bracket().is_some() {
                self.bracketed()?;
            } else {
                self.take_while(|byte| !is_line_end(byte));
            }
        }
    }

    /// How many `=` stand in the long bracket that begins here; `None` if none does.
    fn long_bracket(&self) -> Option<usize> {
        let inner = self.rest.strip_prefix(b"[")?;
        let level = inner.iter().take_while(|byte| **byte == b'=').count();
        (inner.get(level) == Some(&b'[')).then_some(level)
    }

    /// A string in long brackets. A line end right behind the opening bracket is not part of it,
    /// and every other line end becomes one byte.
    fn bracketed(&mut self) -> Result<Cow<'a, [u8]>, NotLua> {
        let level = self.long_bracket().ok_or(NotLua)?;
        self.take(level + 2);
        let end = self.closing_bracket(level).ok_or(NotLua)?;
        let text = self.take(end);
        self.take(level + 2);
        let text = &text[line_end(text)..];
        if !text.contains(&b'\r') {
            return Ok(Cow::Borrowed(text));
        }
        let mut unified = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let length = line_end(&text[at..]);
            unified.push(if length > 0 { b'\n' } else { text[at] });
            at += length.max(1);
        }
        Ok(Cow::Owned(unified))
    }

    /// Where the closing bracket of this level is.
    fn closing_bracket(&self, level: usize) -> Option<usize> {
        let mut at = 0;
        loop {
            at += self.rest.get(at..)?.iter().position(|byte| *byte == b']')?;
            let signs = self.rest[at + 1..].iter();
            let signs = signs.take_while(|byte| **byte == b'=').count();
            if signs == level && self.rest.get(at + 1 + signs) == Some(&b']') {
                return Some(at);
            }
            // The next candidate is the byte behind these signs.
            at += 1 + signs;
        }
    }

    /// A string in quotes. A line end inside needs a backslash in front.
    fn quoted(&mut self) -> Result<Token<'a>, NotLua> {
        let quote = self.take(1)[0];
        let is_plain = |byte| byte != quote && byte != b'\\' && !is_line_end(byte);
        let plain = self.take_while(is_plain);
        if self.rest.first() == Some(&quote) {
            self.take(1);
            return Ok(Token::Text(Cow::Borrowed(plain)));
        }
        let mut text = plain.to_vec();
        loop {
            match *self.rest {
                [byte, ..] if byte == quote => {
                    self.take(1);
                    return Ok(Token::Text(Cow::Owned(text)));
                }
                [b'\\', ..] => {
                    self.take(1);
                    text.push(self.escape()?);
                }
                [byte, ..] if is_plain(byte) => text.extend(self.take_while(is_plain)),
                _ => return Err(NotLua),
            }
        }
    }

    /// The byte that an escape stands for. The backslash has been taken.
    fn escape(&mut self) -> Result<u8, NotLua> {
        let line_end = line_end(self.rest);
        if line_end > 0 {
            self.take(line_end);
            return Ok(b'\n');
        }
        let digits = self.rest.iter().take(3);
        let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            let digits = self.take(digits).iter();
            let value = digits.fold(0, |value, digit| value * 10 + u16::from(digit - b'0'));
            return u8::try_from(value).map_err(|_| NotLua);
        }
        let &[letter, ..] = self.rest else {
            return Err(NotLua);
        };
        self.take(1);
        Ok(match letter {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            itself => itself,
        })
    }

    /// Digits, letters and dots, and a sign behind an exponent's letter. Whether Lua would take it
    /// for a number does not matter here.
    fn number(&mut self) -> &'a [u8] {
        let mut end = 0;
        while let Some(&byte) = self.rest.get(end) {
            let is_exponent = |byte: &u8| matches!(byte, b'e' | b'E');
            let is_sign = matches!(byte, b'+' | b'-')
                && end
                    .checked_sub(1)
                    .is_some_and(|before| is_exponent(&self.rest[before]));
            // Two dots are an operator: `1..2` joins strings.
            let is_dot = byte == b'.' && self.rest.get(end + 1) != Some(&b'.');
            if !(is_word(byte) || is_dot || is_sign) {
                break;
            }
            end += 1;
        }
        self.take(end)
    }

    fn symbol(&mut self) -> Result<&'a [u8], NotLua> {
        let long = LONG_SYMBOLS
            .iter()
            .find(|symbol| self.rest.starts_with(symbol));
        match (long, self.rest.first()) {
            (Some(symbol), _) => Ok(self.take(symbol.len())),
            (None, Some(byte)) if SHORT_SYMBOLS.contains(byte) => Ok(self.take(1)),
            _ => Err(NotLua),
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// The length of the line end at the beginning of `text`: none, one, or the two bytes of `\r\n`.
fn line_end(text: &[u8]) -> usize {
    match text {
        [b'\r', b'\n', ..] | [b'\n', b'\r', ..] => 2,
        [byte, ..] if is_line_end(*byte) => 1,
        _ => 0,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(text: &[u8]) -> Result<Vec<Token<'_>>, NotLua> {
        let mut tokens = Tokens::new(text);
        std::iter::from_fn(|| tokens.next().transpose()).collect()
    }

    fn text(bytes: &[u8]) -> Token<'_> {
        Token::Text(Cow::Borrowed(bytes))
    }

    #[test]
    fn words_numbers_and_symbols_are_told_apart() {
        let found = tokens(b"a1=0x1F+1e-3..b_ ~=...#.5 3..4").unwrap();
        let expected = [
            Token::Word(b"a1"),
            Token::Symbol(b"="),
            Token::Number(b"0x1F"),
            Token::Symbol(b"+"),
            Token::Number(b"1e-3"),
            Token::Symbol(b".."),
            Token::Word(b"b_"),
            Token::Symbol(b"~="),
            Token::Symbol(b"..."),
            Token::Symbol(b"#"),
            Token::Number(b".5"),
            Token::Number(b"3"),
            Token::Symbol(b".."),
            Token::Number(b"4"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_string_is_the_same_however_it_is_quoted() {
        let same: [&[u8]; 8] = [
            b"'nx\n'",
            b"\"nx\\n\"",
            b"'nx\\n'",
            b"'n\\x\\n'",
            b"'\\110x\\010'",
            b"'nx\\\n'",
            b"[[nx\n]]",
            b"[==[\r\nnx\r\n]==]",
        ];
        assert_eq!(tokens(same[0]), Err(NotLua), "a line ends inside quotes");
        for quoted in &same[1..] {
            assert_eq!(tokens(quoted).unwrap(), [text(b"nx\n")], "{quoted:?}");
        }
        assert_eq!(tokens(b"[=[a]]b]=c]=]").unwrap(), [text(b"a]]b]=c")]);
        assert_eq!(tokens(b"'a\"b'").unwrap(), [text(b"a\"b")]);
    }

    #[test]
    fn comments_are_no_tokens() {
        let found = tokens(b"a -- b\n--[[ c\n d ]] e --[==[ ]] ]==] f --[ g").unwrap();
        assert_eq!(
            found,
            [Token::Word(b"a"), Token::Word(b"e"), Token::Word(b"f")]
        );
    }

    #[test]
    fn what_is_not_closed_or_known_is_not_lua() {
        let refused: [&[u8]; 9] = [
            b"'a", b"\"a\\", b"'\\300'", b"[[a]", b"--[[ a", b"a ! b", b"#!lua", b"a\0b", b"\xff",
        ];
        for wrong in refused {
            assert_eq!(tokens(wrong), Err(NotLua), "{wrong:?}");
        }
        assert_eq!(tokens(b"[=a").unwrap().len(), 3, "no long bracket");
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(bytes: Vec<u8>) {
            let _ = tokens(&bytes);
        }

        #[test]
        fn anything_lua_like_comes_to_an_end(text in r#"[-\[\]='"\\a-e0-9. \n]{0,60}"#) {
            let _ = tokens(text.as_bytes());
        }
    }
}
