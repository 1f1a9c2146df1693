//! Redis's patterns, as `KEYS`, `SCAN`, `PSUBSCRIBE` and `CONFIG GET` take them: `*`, `?`, `[a-c]`,
//! `[^x]`, and `\` before any of these.

use super::refusal::Refusal;

/// The longest pattern: each key is compared with it.
const PATTERN_BYTES_MAX: usize = 1_024;

/// Refuses a pattern that is too long.
pub(crate) fn check(pattern: &[u8]) -> Result<(), Refusal> {
    Refusal::if_longer("a pattern", pattern, PATTERN_BYTES_MAX)
}

/// Whether `pattern` matches `text`. At worst the time grows with the product of their lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if the latest star has to match one byte more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
            continue;
        }
        if let Some(used) = one(&pattern[p..], text[t]) {
            p += used;
            t += 1;
            continue;
        }
        let Some((after_star, from)) = retry else {
            return false;
        };
        retry = Some((after_star, from + 1));
        (p, t) = (after_star, from + 1);
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// How many bytes of the pattern match this one byte; `None` if they do not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (escaped == byte).then_some(2),
        [b'[', ref class @ ..] => {
            let (is_in, used) = in_class(class, byte);
            is_in.then_some(used + 1)
        }
        [plain, ..] => (plain == byte).then_some(1),
    }
}

/// Whether a byte is in a class, and how long the class is. A class that is not closed ends with
/// the pattern.
fn in_class(class: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = class.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut found = false;
    loop {
        match class[at.min(class.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= plain == byte;
                at += 1;
            }
        }
    }
    (found != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: [(&str, &str, bool); 22] = [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("lock:*", "lock:a", true),
            ("lock:*", "lock", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c*", "xxaxxcxxbxx", false),
            ("**", "x", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_answered_in_time() {
        let pattern = "a*".repeat(40) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(2_000).as_bytes()));
    }
}
