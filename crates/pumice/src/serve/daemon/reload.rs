//! Reload of the configuration.

use super::*;

impl Daemon {
    /// Reads the configuration again and applies it. If it has an error, logs the error and changes nothing.
    pub(super) async fn reload(&mut self) {
        let Some(file) = self.source.file.clone() else {
            tracing::warn!("nothing to read again: this server was started without a configuration file");
            return;
        };
        let mut stop = self.signals.stop.clone();
        let prepared = tokio::select! {
            biased;
            // The caller closes open drives next.
            () = stop.requested() => return,
            prepared = self.prepare() => prepared,
        };
        match prepared {
            Ok((config, nbd, bound)) => {
                self.apply(config, nbd, bound).await;
                tracing::info!(file = %file.display(), "{}", self.summary());
            }
            Err(error) => {
                let hint = self.privileges.explain(&error).map(|hint| format!("; {hint}"));
                let (error, hint) = (one_line(&error), hint.unwrap_or_default());
                tracing::error!("configuration not taken, nothing changed: {error}{hint}");
            }
        }
    }

    /// Makes all checks that are possible without affecting served drives. Also binds the new addresses.
    /// Returns the bound addresses of drives that are not open yet.
    async fn prepare(&mut self) -> Result<(Config, ServerConfig, Vec<Bound>)> {
        let mut config = self.source.load()?;
        let nbd = self.with_renewed_tls(config.server.nbd_config()?.tls);
        self.keep_what_needs_a_restart(&mut config);
        config.check_clients().context("as long as the server is not restarted")?;
        let addresses = addresses(&config)?;
        self.endpoints.check_open(&addresses, &nbd)?;
        let moves = config.server.options.http != self.config.server.options.http;
        let hosts = self.endpoints.missing_hosts(&addresses);
        let names =
            Names::resolve(hosts.into_iter().chain(http_host(&config.server).filter(|_| moves))).await;
        let bound = self.endpoints.bind(&addresses, &names, &nbd)?;
        // Drives that stay accept clients at their new addresses immediately.
        let mut wanted = Vec::new();
        for address in &config.server.nbd {
            wanted.push((absolute(address)?, self.common.clone()));
        }
        for open in &self.open {
            if let Some(new) = config.drives.iter().find(|new| new.path == open.config.path) {
                for address in own_addresses(new, &config.server)? {
                    wanted.push((absolute(&address)?, open.own.clone()));
                }
            }
        }
        if config.runs_commands() && self.privileges.limits_commands() {
            tracing::warn!(
                "commands of on-event can write only where the drives and sockets are, and not connect by TCP, until \
                 the server is restarted"
            );
        }
        let http = moves.then(|| bind_http(&config.server, &names)).transpose()?;
        let bound = self.endpoints.accept(bound, &wanted, &nbd)?;
        // Nothing fails from here on.
        if let Some(http) = http {
            self.http = http.map(|listener| {
                http::serve(listener, self.drives.clone(), self.common.clone(), &self.printer)
            });
        }
        Ok((config, nbd, bound))
    }

    /// Returns the NBD settings in effect with other certificates. Whether TLS is required cannot change.
    fn with_renewed_tls(&self, tls: nbd::TlsPolicy) -> ServerConfig {
        let tls = match (&self.nbd.tls, tls) {
            (nbd::TlsPolicy::Required(_), tls @ nbd::TlsPolicy::Required(_)) => tls,
            (now, _) => now.clone(),
        };
        ServerConfig { tls, ..self.nbd.clone() }
    }

    /// Keeps settings that cannot change while the server runs, and logs a warning for each.
    fn keep_what_needs_a_restart(&self, config: &mut Config) {
        let (now, new) = (&self.config.server, &mut config.server);
        let warn_kept =
            |what: &str| tracing::warn!("server.{what} changed: takes effect when the server is restarted");
        let mut kept = now.options.clone();
        kept.http.clone_from(&new.options.http);
        kept.differences(&new.options).iter().for_each(|key| warn_kept(key));
        new.options = kept;
        if new.admin != now.admin {
            warn_kept("admin");
            new.admin.clone_from(&now.admin);
        }
        if new.tls.is_some() != now.tls.is_some() {
            warn_kept("tls");
            new.tls.clone_from(&now.tls);
        }
    }

    async fn apply(&mut self, mut config: Config, nbd: ServerConfig, bound: Vec<Bound>) {
        for open in &mut self.open {
            if let Some(new) = config.drives.iter().find(|new| new.path == open.config.path) {
                open.config.access.clone_from(&new.access);
                for exports in [&self.common, &open.own] {
                    exports.set_access(&open.config.name, new.access.clone());
                }
            }
        }
        // Certificates may have been renewed in the same files.
        self.common.renew_tls(nbd.tls.clone());
        self.open.iter().for_each(|open| open.own.renew_tls(nbd.tls.clone()));
        self.nbd = nbd;
        // Removed drives are closed first, because new ones may use their names.
        while let Some(at) = self.open.iter().position(|open| find(&config, open).is_none()) {
            self.close_logged(at).await;
        }
        self.retain_down(|path| config.drives.iter().any(|drive| drive.path == path));
        self.rename(&config);
        self.warn_of_new_default_export(&config);
        let mut reopened = Vec::new();
        for at in (0..self.open.len()).rev() {
            let open = &mut self.open[at];
            let Some(new) = config.drives.iter_mut().find(|new| new.path == open.config.path) else {
                continue;
            };
            if open.change(new, &self.common, &self.privileges) {
                reopened.push((new.clone(), self.close_logged(at).await));
            }
        }
        for (new, own) in reopened {
            self.open_logged(new, Some(own)).await;
        }
        for new in &config.drives {
            if self.open.iter().all(|open| open.config.path != new.path) {
                self.open_logged(new.clone(), None).await;
            }
        }
        self.listen_as(&config.server, bound).await;
        self.endpoints.announce(&self.nbd, &self.printer);
        self.config = config;
    }

    /// Listens at the addresses of the given server settings and the open drives.
    pub(super) async fn listen_as(&mut self, server: &Server, bound: Vec<Bound>) {
        match self.wanted(server) {
            Ok(wanted) => self.listen(bound, &wanted).await,
            Err(error) => tracing::error!("not listening: {}", one_line(&error)),
        }
    }

    /// Listens at the given addresses only. A failure of one address does not affect the others.
    async fn listen(&mut self, bound: Vec<Bound>, wanted: &[(Address, Exports)]) {
        self.endpoints.retain(wanted).await;
        let log_failure = |error| tracing::error!("not listening: {}", one_line(&error));
        for bound in bound {
            let accepted = self.endpoints.accept(vec![bound], wanted, &self.nbd);
            accepted.map_or_else(log_failure, drop);
        }
        let addresses: Vec<Address> = wanted.iter().map(|(address, _)| address.clone()).collect();
        let names = Names::resolve(self.endpoints.missing_hosts(&addresses)).await;
        for address in &addresses {
            let bound = self.endpoints.bind(std::slice::from_ref(address), &names, &self.nbd);
            let accepted = bound.and_then(|bound| self.endpoints.accept(bound, wanted, &self.nbd));
            accepted.map_or_else(log_failure, drop);
        }
        self.endpoints.report_unaccepted();
    }

    async fn close_logged(&mut self, at: usize) -> Exports {
        let (own, closed) = self.close_drive(at).await;
        if let Err(error) = closed {
            tracing::error!("{}", one_line(&error));
        }
        own
    }

    async fn open_logged(&mut self, config: DriveConfig, own: Option<Exports>) {
        match self.open_unless_stopped(config.clone(), own).await {
            // The caller closes open drives next.
            None => {}
            Some(Ok(())) => self.retain_down(|path| path != config.path),
            Some(Err(error)) => self.down(&config, &error),
        }
    }

    /// Logs a warning if the default export, for clients that request no name, is another drive than before.
    fn warn_of_new_default_export(&self, config: &Config) {
        let shared = !self.config.server.nbd.is_empty() && !config.server.nbd.is_empty();
        if let (true, Some(before), Some(now)) = (shared, self.config.drives.first(), config.drives.first())
            && before.path != now.path
        {
            let (before, now) = (shown(&before.path), shown(&now.path));
            tracing::warn!(%before, %now, "clients that request no export name get another drive from now on");
        }
    }

    /// Offers drives under their new names and disconnects clients of the old names.
    fn rename(&mut self, config: &Config) {
        let named = |open: &Open| find(config, open).map(|new| new.name.clone());
        let renamed = |open: &&mut Open| named(open).is_some_and(|name| name != open.config.name);
        // Withdraws all old names first, because drives may swap names.
        for open in self.open.iter().filter(|open| named(open).is_some_and(|name| name != open.config.name)) {
            withdraw(&self.common, open);
        }
        self.common.arrange(config.names());
        for open in self.open.iter_mut().filter(renamed) {
            let Some(name) = named(open) else { continue };
            let drive = shown(&open.config.path);
            tracing::info!(%drive, name, "renamed; clients of the old name are disconnected");
            open.own.arrange(vec![name.clone()]);
            open.config.name = name;
            for exports in [&self.common, &open.own] {
                if let Err(error) = exports.add(export(&open.config, &open.drive)) {
                    tracing::error!(%drive, %error, "not offered");
                }
            }
        }
    }
}

fn find<'a>(config: &'a Config, open: &Open) -> Option<&'a DriveConfig> {
    config.drives.iter().find(|new| new.path == open.config.path)
}

impl Open {
    /// Number of clients that have selected this drive.
    pub(super) fn clients(&self, common: &Exports) -> usize {
        let of = |exports: &Exports| exports.find(&self.config.name).map_or(0, |export| export.sessions());
        of(common) + of(&self.own)
    }

    /// Applies new settings. Settings that can change on an open drive take effect immediately. Returns true
    /// if the drive must be reopened for the others. If clients are connected, the drive is not reopened:
    /// these settings are kept, and a warning is logged.
    fn change(&mut self, new: &mut DriveConfig, common: &Exports, privileges: &Privileges) -> bool {
        let path = shown(&new.path);
        self.config.nbd.clone_from(&new.nbd);
        let (now, wanted) = (self.config.options.open(), new.options.open());
        if wanted.map_budget_bytes != now.map_budget_bytes {
            self.drive.set_map_budget_bytes(wanted.map_budget_bytes);
            self.config.options.map_cache.clone_from(&new.options.map_cache);
            tracing::info!(drive = %path, bytes = wanted.map_budget_bytes, "map-cache changed");
        }
        if wanted.background_cpu_percent != now.background_cpu_percent {
            self.drive.set_background_cpu_percent(wanted.background_cpu_percent);
            self.config.options.background_cpu.clone_from(&new.options.background_cpu);
            tracing::info!(drive = %path, percent = wanted.background_cpu_percent, "background-cpu changed");
        }
        let differences = self.config.options.differences(&new.options);
        if differences.is_empty() {
            return false;
        }
        let clients = self.clients(common);
        if clients == 0 {
            if privileges.can_open(&new.path, wanted.read_only) {
                tracing::info!(drive = %path, "opening it again for its new settings");
                return true;
            }
            tracing::warn!(
                drive = %path,
                "{} changed: takes effect when the server is restarted, because it can no longer open the drive",
                differences.join(", ")
            );
            new.options = self.config.options.clone();
            return false;
        }
        tracing::warn!(
            drive = %path,
            clients,
            "{} changed: takes effect when the server is restarted, or at a reload while no client is connected",
            differences.join(", ")
        );
        new.options = self.config.options.clone();
        false
    }
}
