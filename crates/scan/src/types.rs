//! File types: by magic number if the head was read, else by extension.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

/// Number of bytes at the start of a file that are checked for a magic number.
pub(crate) const HEAD_BYTES: usize = 4096;

/// Longest accepted extension. It excludes hashes; that of `tar.zst` has three characters.
const EXTENSION_MAX: usize = 8;

/// Returns the extension in lower case, if it looks like one: letters and digits, with at least one letter.
pub(crate) fn by_extension(name: &OsStr) -> Option<String> {
    let extension = Path::new(name).extension()?.to_str()?;
    let sane = extension.len() <= EXTENSION_MAX
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && extension.bytes().any(|byte| byte.is_ascii_alphabetic());
    sane.then(|| canonical(&extension.to_ascii_lowercase()).to_string())
}

/// Returns a common name for different spellings of an extension.
fn canonical(extension: &str) -> &str {
    match extension {
        "jpeg" | "jpe" => "jpg",
        "htm" => "html",
        "tiff" => "tif",
        "yml" => "yaml",
        "tgz" => "gz",
        "so" | "ko" => "elf",
        "text" => "txt",
        other => other,
    }
}

/// Returns the type by the head of a file, which may be shorter than [`HEAD_BYTES`].
pub(crate) fn by_magic(head: &[u8]) -> Option<String> {
    let found = infer::get(head)?;
    // `infer` has no usual extension for ELF files and shell scripts.
    let name = match found.mime_type() {
        "application/x-executable" => "elf",
        "text/x-shellscript" => "sh",
        _ => found.extension(),
    };
    Some(canonical(name).to_string())
}

/// Returns a type for a head without a known magic number.
pub(crate) fn by_looks(head: &[u8]) -> String {
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // A character may be cut at the end.
        Err(error) if error.valid_up_to() + 4 > head.len() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let is_text = text.is_some_and(|text| {
        !text.is_empty()
            && !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x1b'))
    });
    if is_text { "text" } else { "other" }.to_string()
}

/// Numbered names.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    pub(crate) fn number(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions() {
        let of = |name: &str| by_extension(OsStr::new(name));
        assert_eq!(of("a.CSV").as_deref(), Some("csv"));
        assert_eq!(of("photo.jpeg").as_deref(), Some("jpg"));
        assert_eq!(of("libz.so.1.2.13"), None);
        assert_eq!(of("README"), None);
        assert_eq!(of(".profile"), None);
        assert_eq!(of("x.0123456789abcdef"), None);
        assert_eq!(of("movie.h264").as_deref(), Some("h264"));
    }

    #[test]
    fn magic_and_looks() {
        assert_eq!(by_magic(&[0xff, 0xd8, 0xff, 0xe0, 0, 0x10]).as_deref(), Some("jpg"));
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        assert_eq!(by_magic(&elf).as_deref(), Some("elf"));
        let png = [0x89, b'P', b'N', b'G', 13, 10, 26, 10];
        assert_eq!(by_magic(&png).as_deref(), Some("png"));
        assert_eq!(by_magic(b"just words"), None);
        assert_eq!(by_looks(b"just words\n"), "text");
        assert_eq!(by_looks("caf\u{e9}".as_bytes()), "text");
        assert_eq!(by_looks(&"caf\u{e9}".as_bytes()[..4]), "text");
        assert_eq!(by_looks(&[1, 2, 3, 200]), "other");
        assert_eq!(by_looks(&[]), "other");
    }
}
