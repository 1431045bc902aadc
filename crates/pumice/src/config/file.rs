//! Configuration file in TOML. Unknown keys are refused, and every error names the line and the field.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::options::{DriveOptions, ServerOptions};

/// Largest file that is read. The limit protects memory if the path is wrong.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct File {
    pub(super) server: ServerOptions,
    pub(super) drive: Vec<DriveOptions>,
}

/// Reads and parses a file.
pub(super) fn read(path: &Path) -> Result<File> {
    let shown = path.display();
    let metadata =
        std::fs::metadata(path).with_context(|| format!("{shown}: cannot read the configuration"))?;
    if !metadata.is_file() || metadata.len() > FILE_MAX_BYTES {
        return Err(anyhow!("{shown}: not a configuration file of up to 1 MiB; check --config"));
    }
    let bytes = std::fs::read(path).with_context(|| format!("{shown}: cannot read the configuration"))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = line_of(&bytes, error.valid_up_to());
        anyhow!("{shown}:{line}: not UTF-8 text, which TOML is")
    })?;
    parse(text).map_err(|(at, field, what)| {
        let line = at.map_or(String::new(), |at| format!(":{}", line_of(text.as_bytes(), at)));
        let field = field.map_or(String::new(), |field| format!("{field}: "));
        anyhow!("{shown}{line}: {field}{}", what.replace('\n', " "))
    })
}

fn line_of(text: &[u8], at: usize) -> usize {
    1 + text.iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Parse error: byte offset, field, message.
type ParseError = (Option<usize>, Option<String>, String);

fn parse(text: &str) -> Result<File, ParseError> {
    let parse_error = |error: &toml::de::Error, field: Option<String>| {
        (error.span().map(|span| span.start), field, error.message().to_string())
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| parse_error(&error, None))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let field = (path != "." && path != "?").then_some(path);
        parse_error(error.inner(), field)
    })
}
