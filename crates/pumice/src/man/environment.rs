//! Environment variables that commands read, as their pages list them.

/// Commands that ask no server.
const WITHOUT_SERVERS: [&str; 7] =
    ["man", "completions", "tco", "plan", "scan", "bench-compare", "bench-scorecard"];

/// Variables, the commands that read them (`*` stands for all that ask servers), and their meaning.
const VARIABLES: [(&str, &[&str], &str); 22] = [
    (
        "PUMICE_CONFIG",
        &["serve", "attach", "detach", "doctor"],
        "Configuration file, instead of /etc/pumice/pumice.toml, if no drive is named on the command line.",
    ),
    ("PUMICE_IO", &["serve", "attach", "demo", "bench"], "Default of --io of servers."),
    (
        "PUMICE_LOG",
        &["serve", "attach", "demo", "bench"],
        "Level of the log: error, warn, info (the default) or debug, or levels per crate, such as info,nbd=debug.",
    ),
    (
        "PUMICE_RUNTIME_DIR",
        &["*"],
        "Directory of the admin sockets, by which commands find servers. Set it to the same value for servers and \
         commands. Records of attached drives are in the directory of this name with -attach appended. If it is \
         unset, servers use the first of these directories that they can create and write, and commands search all \
         of them, in this order: /run/pumice, $XDG_RUNTIME_DIR/pumice, $TMPDIR/pumice-UID.",
    ),
    ("PUMICE_USER", &["serve", "attach", "demo"], "Default of --user of servers."),
    (
        "XDG_RUNTIME_DIR, TMPDIR",
        &["*"],
        "See PUMICE_RUNTIME_DIR. If TMPDIR is unset, it is /tmp. XDG_RUNTIME_DIR is skipped if it is unset.",
    ),
    (
        "NOTIFY_SOCKET",
        &["serve", "attach"],
        "Set by systemd: readiness and status are reported there (sd_notify(3)).",
    ),
    (
        "LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES",
        &["serve"],
        "Set by systemd: sockets to serve (sd_listen_fds(3)).",
    ),
    ("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY", &["scan", "bench"], "Keys for object storage."),
    ("AWS_SESSION_TOKEN", &["scan"], "Token of temporary keys."),
    ("AWS_ENDPOINT_URL", &["scan"], "Default of --s3-endpoint."),
    ("AWS_REGION", &["scan", "bench"], "Region of the object storage; for scan the default of --s3-region."),
    ("AWS_DEFAULT_REGION", &["scan"], "Region if neither --s3-region nor AWS_REGION is given."),
    (
        "CEPH_CONF",
        &["bench"],
        "Configuration file of the Ceph cluster, if the target names none [default: /etc/ceph/ceph.conf].",
    ),
    (
        "ALL_PROXY, HTTPS_PROXY, HTTP_PROXY, NO_PROXY",
        &["scan", "bench"],
        "Proxy for HTTP and HTTPS: the first of them that is set, and the hosts that are reached without it. Names in \
         lower case are read as well.",
    ),
    (
        "SSL_CERT_FILE, SSL_CERT_DIR",
        &["scan", "bench"],
        "Certificates of authorities for HTTPS, in place of those of the system.",
    ),
    ("PATH", &["*"], "Where other programs are searched for, such as smartctl and wipefs."),
    ("TERM", &["status"], "If unset or dumb, --watch prints plain reports."),
    ("NO_COLOR", &[""], "If set and not empty, nothing is coloured."),
    (
        "CLICOLOR_FORCE",
        &[""],
        "If set and not 0, colours are kept where the output is no terminal, also those of the log, unless NO_COLOR is \
         set.",
    ),
    (
        "CLICOLOR",
        &[""],
        "If 0, nothing is coloured, unless CLICOLOR_FORCE asks for it. With another value, or with CI set, a terminal \
         has colours although its TERM is dumb.",
    ),
    ("RUST_BACKTRACE", &[""], "If 1, a report of an internal error contains a backtrace."),
];

/// Returns the variables of the page of a command, each with its meaning. The page of the program has all.
pub(super) fn of(page: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let command = page.strip_prefix("pumice-").unwrap_or("").to_owned();
    let asks = !WITHOUT_SERVERS.contains(&command.as_str());
    let is_read = move |commands: &[&str]| match commands {
        [""] => true,
        ["*"] => asks,
        commands => command.is_empty() || commands.contains(&command.as_str()),
    };
    VARIABLES
        .into_iter()
        .filter(move |(_, commands, _)| is_read(commands))
        .map(|(name, _, what)| (name, what))
}
