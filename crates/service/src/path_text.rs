//! Paths as text. A path is bytes; JSON, logs and terminals take text only.

use std::ffi::OsString;
use std::fmt;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Begins the text of a path that is not UTF-8. No absolute path begins like this.
const SCHEME: &str = "file://";

/// The path as text for programs, from which [`parse_path`] makes the same path again: itself if it is UTF-8, otherwise a
/// `file://` URI with percent-encoding (RFC 3986).
pub fn path_text(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return text.to_string();
    }
    let mut text = SCHEME.to_string();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The path of a text made by [`path_text`].
pub fn parse_path(text: &str) -> PathBuf {
    let Some(mut rest) = text.strip_prefix(SCHEME).map(str::as_bytes) else { return text.into() };
    let mut bytes = Vec::with_capacity(rest.len());
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    loop {
        rest = match rest {
            [] => return OsString::from_vec(bytes).into(),
            [b'%', high, low, after @ ..] if digit(*high).is_some() && digit(*low).is_some() => {
                bytes.push(digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0));
                after
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        };
    }
}

/// The path as text for people: bytes that are not UTF-8 as `\xff`, control characters as `\n` or `\u{1b}`.
pub fn shown(path: &Path) -> Shown<'_> {
    Shown(path)
}

/// See [`shown`].
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(&'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() {
                    write!(f, "{}", character.escape_default())?;
                } else {
                    f.write_char(character)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// For `#[serde(with)]`: [`path_text`] and [`parse_path`].
pub(crate) mod as_text {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::path_text(path))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(super::parse_path(&String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn text_leads_back_to_the_path() {
        for (bytes, text) in [
            (&b"/srv/drive"[..], "/srv/drive"),
            (b"/dev/disk/by-label/a\\x20b", "/dev/disk/by-label/a\\x20b"),
            (b"/srv/%41", "/srv/%41"),
            ("/srv/\u{e9}".as_bytes(), "/srv/\u{e9}"),
            (b"/srv/dr\xffve", "file:///srv/dr%FFve"),
            (b"/srv/%41 \xfe\\xff", "file:///srv/%2541%20%FE%5Cxff"),
        ] {
            let path = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(path_text(path), text);
            assert_eq!(parse_path(text), path, "{text}");
        }
        // Whatever somebody else writes there is a path of some kind.
        for odd in ["file://", "file:///a%", "file:///a%4", "file:///a%zz", "file:///\u{e9}%C3"] {
            parse_path(odd);
        }
    }

    #[test]
    fn people_see_every_byte() {
        let path = Path::new(OsStr::from_bytes(b"/srv/\xc3\xa9 \xff\xfe\n\x1b[2J"));
        assert_eq!(shown(path).to_string(), "/srv/\u{e9} \\xff\\xfe\\n\\u{1b}[2J");
    }
}
