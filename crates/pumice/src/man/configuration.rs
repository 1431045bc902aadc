//! `pumice.toml(5)`: keys of the configuration file, generated from the definition of the options.

use std::io::{self, Write};

use clap::{Args, Command};

use super::escape;
use crate::config::{DEFAULT_PATH, DriveOptions, ServerOptions};

/// File name of the page.
pub(super) const FILE: &str = "pumice.toml.5";
/// Sample configuration file.
const SAMPLE: &str = include_str!("../../../../deploy/pumice.toml");

/// Keys of `[server]` without an option of the same name: key, form, purpose.
const OF_SERVER: [(&str, &str, &str); 5] = [
    (
        "nbd",
        "a list of addresses, \"unix:SOCKET\" or \"tcp:HOST:PORT\"",
        "Where all drives are offered, each under its name [default: none; each drive has a socket of its own, \
         unix:PATH.nbd]",
    ),
    ("admin", "\"unix:SOCKET\"", "Additional admin socket for all drives"),
    (
        "tls.cert, tls.key, tls.ca, tls.crl",
        "paths of PEM files",
        "Certificate chain, its key, the authorities that must have issued the certificates of clients, and their \
         revocation lists [default: no TLS]",
    ),
    ("warn-at", "as of a drive", "For all drives that have none of their own"),
    ("on-event", "as of a drive", "For all drives that have none of their own"),
];
/// Keys of `[[drive]]` without an option of the same name: key, form, purpose.
const OF_DRIVE: [(&str, &str, &str); 7] = [
    ("path", "a path that begins with /", "File or block device with the drive; required"),
    ("name", "a name of 1 to 4096 bytes", "Export name [default: name of the file]"),
    (
        "nbd",
        "a list of addresses, \"unix:SOCKET\" or \"tcp:HOST:PORT\"",
        "Where this drive is the only export",
    ),
    (
        "clients",
        "a list of clients: DNS names in their certificates, or \"sha256:FINGERPRINT\"",
        "Clients that may use the drive; requires tls.ca [default: all, unless clients-read-only is given]",
    ),
    ("clients-read-only", "a list of clients", "Clients that may only read the drive; requires tls.ca"),
    (
        "attach",
        "true or false",
        "Attached as a block device by \"pumice attach --configured\", which pumice-attach.service runs; the server \
         does nothing with it [default: false]",
    ),
    ("by", "\"auto\", \"loop\" or \"nbd\"", "Way to attach it; requires attach [default: auto]"),
];

/// Returns the page.
pub(super) fn page() -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, ".TH PUMICE.TOML 5 \"\" \"pumice {version}\" \"Pumice\"")?;
    writeln!(out, ".SH NAME\npumice.toml \\- drives and options of pumice\\-serve(1)")?;
    writeln!(
        out,
        ".SH DESCRIPTION\nRead by \\fBpumice serve\\fR, from {DEFAULT_PATH} if no drive is named, or from the file \
         named by \\fB\\-\\-config\\fR or $PUMICE_CONFIG. The format is TOML. Options on the command line take \
         precedence. Unknown keys and invalid values are refused with file, line and key. SIGHUP makes a server read \
         it again."
    )?;
    keys(
        &mut out,
        "[server]",
        &OF_SERVER,
        ServerOptions::augment_args(Command::new("")),
        ServerOptions::FORMS,
    )?;
    keys(
        &mut out,
        "[[drive]]",
        &OF_DRIVE,
        DriveOptions::augment_args(Command::new("")),
        DriveOptions::FORMS,
    )?;
    writeln!(out, ".SH EXAMPLE\n.nf")?;
    for line in SAMPLE.lines() {
        writeln!(out, "{}", escape(line))?;
    }
    writeln!(out, ".fi\n.SH FILES\n{DEFAULT_PATH}\n.SH SEE ALSO\npumice(1), pumice\\-serve(1)")?;
    Ok(out)
}

/// Writes a section of keys. Keys that are also options use the help of the option.
fn keys(
    out: &mut Vec<u8>,
    table: &str,
    others: &[(&str, &str, &str)],
    options: Command,
    forms: &[(&str, &str)],
) -> io::Result<()> {
    writeln!(out, ".SH KEYS OF {table}")?;
    let mut key = |key: &str, form: &str, purpose: &str| {
        writeln!(out, ".TP\n\\fB{}\\fR = {}\n{}", escape(key), escape(form), escape(purpose))
    };
    for (name, form, purpose) in others {
        key(name, form, purpose)?;
    }
    for (field, form) in forms {
        let name = field.replace('_', "-");
        let option = options.get_arguments().find(|option| option.get_long() == Some(&name));
        let help = option.and_then(clap::Arg::get_help).map(ToString::to_string).unwrap_or_default();
        key(&name, form, &help)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_a_key_with_its_help() {
        let page = String::from_utf8(page().expect("a page")).expect("text");
        for (options, forms) in [
            (ServerOptions::augment_args(Command::new("")), ServerOptions::FORMS),
            (DriveOptions::augment_args(Command::new("")), DriveOptions::FORMS),
        ] {
            let options: Vec<_> = options.get_arguments().cloned().collect();
            assert_eq!(options.len(), forms.len());
            for option in options {
                let key = format!("\\fB{}\\fR = ", escape(option.get_long().expect("a name")));
                let help = escape(&option.get_help().expect("help").to_string());
                assert!(page.contains(&key) && page.contains(&help), "{key}");
            }
        }
    }
}
