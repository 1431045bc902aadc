//! Paths as text. A path is a sequence of bytes; JSON, logs and terminals need text.

use std::ffi::OsString;
use std::fmt;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// Prefix of the text of a path that is not UTF-8. No absolute path has this prefix.
const SCHEME: &str = "file://";
/// Bytes that are encoded in a URI: all but the unreserved characters of RFC 3986, and the slash.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Returns the path as text for programs. [`parse_path`] returns the same path again. A path that is UTF-8 is
/// its own text, any other is a `file://` URI with percent-encoding (RFC 3986).
pub fn path_text(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_string(),
        None => format!("{SCHEME}{}", uri_path(path)),
    }
}

/// Returns the path as a part of a URI (RFC 3986), percent-encoded but for unreserved characters and slashes.
pub fn uri_path(path: &Path) -> String {
    percent_encode(path.as_os_str().as_bytes(), ENCODED).to_string()
}

/// Returns the path of a text made by [`path_text`].
pub fn parse_path(text: &str) -> PathBuf {
    match text.strip_prefix(SCHEME) {
        Some(encoded) => OsString::from_vec(percent_decode_str(encoded).collect()).into(),
        None => text.into(),
    }
}

/// Displays the path for people: bytes that are not UTF-8 as `\xff`, characters that are not visible or
/// change the order of others as `\n` or `\u{1b}`.
pub fn shown(path: &Path) -> Shown<'_> {
    Shown(path)
}

/// Returns whether a character changes how others look: directions of text (Unicode Standard Annex 9) and
/// separators of lines. They could make a path look like another one.
fn is_format(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// See [`shown`].
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(&'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() || is_format(character) {
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
pub mod as_text {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a path.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::path_text(path))
    }

    /// Reads a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
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
        // Any other text is some path.
        for odd in ["file://", "file:///a%", "file:///a%4", "file:///a%zz", "file:///\u{e9}%C3"] {
            parse_path(odd);
        }
    }

    #[test]
    fn people_see_every_byte() {
        let path = Path::new(OsStr::from_bytes(b"/srv/\xc3\xa9 \xff\xfe\n\x1b[2J"));
        assert_eq!(shown(path).to_string(), "/srv/\u{e9} \\xff\\xfe\\n\\u{1b}[2J");
        let reversed = Path::new("/srv/\u{202e}gpj.exe\u{2066}");
        assert_eq!(shown(reversed).to_string(), "/srv/\\u{202e}gpj.exe\\u{2066}");
    }
}
