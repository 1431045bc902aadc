//! Parser for scenarios in TOML. Errors report the line, the field and the expected value.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::field::{Field, Kind, VALUE_MAX, VALUE_MIN};
use crate::scenario::{CODEC_FIELDS, COLUMNS_MAX, CodecFigures, Column, Input, Origin, Scenario};
use crate::show::found;

/// Error in a scenario, with its location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct ScenarioError {
    /// The file, as given.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The field concerned, as spelled in scenarios; empty if the text is not TOML.
    pub field: String,
    /// Description with the field, the expected value and the value found.
    pub problem: String,
}

/// Largest size of a scenario in bytes.
pub const SCENARIO_MAX_BYTES: usize = 1 << 20;

/// Parses a scenario. `file` is used in messages and in [`Scenario::file`].
///
/// # Errors
///
/// Fails if the text is too large or not TOML, has an unknown key, lacks a required key, or has an invalid
/// value.
pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let reader = Reader { file, text };
    if text.len() > SCENARIO_MAX_BYTES {
        return Err(reader.error(
            0,
            "",
            format!("expected at most {SCENARIO_MAX_BYTES} bytes, found {}", text.len()),
        ));
    }
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.error(at, "", format!("not TOML: {}", error.message().replace('\n', ", ")))
    })?;
    reader.scenario(document.get_ref())
}

/// Keys allowed beside the sections, in the scenario and in a column.
const TOP_KEYS: &str = "title, baseline, equal_ratio, [common], [[column]]";
const COLUMN_KEYS: &str = "name, kind, note, compresses, codec, scan, bench, [column.codecs.NAME], [column.sources] \
    and the sections of fields";

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

type Table<'a> = DeTable<'a>;
type Value<'a> = Spanned<DeValue<'a>>;

/// Fields and sources of a table, with the byte offsets of the fields.
#[derive(Default)]
struct Sections {
    values: BTreeMap<Field, (f64, usize)>,
    sources: BTreeMap<Field, String>,
}

impl Reader<'_> {
    fn error(&self, at: usize, field: &str, problem: String) -> ScenarioError {
        let before = self.text.as_bytes().iter().take(at);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        let problem = if field.is_empty() { problem } else { format!("{field}: {problem}") };
        ScenarioError { file: self.file.to_string(), line, field: field.to_string(), problem }
    }

    fn unexpected<T>(&self, value: &Value<'_>, field: &str, expected: &str) -> Result<T, ScenarioError> {
        let at = value.span().start;
        Err(self.error(at, field, format!("expected {expected}, found {}", describe(value.get_ref()))))
    }

    fn unknown<T>(&self, at: usize, key: &str, expected: &str) -> Result<T, ScenarioError> {
        Err(self.error(at, key, format!("unknown key; expected {expected}")))
    }

    fn table<'v, 'i>(&self, value: &'v Value<'i>, field: &str) -> Result<&'v Table<'i>, ScenarioError> {
        value.get_ref().as_table().map_or_else(|| self.unexpected(value, field, "a table"), Ok)
    }

    fn string(&self, value: &Value<'_>, field: &str) -> Result<String, ScenarioError> {
        let text = value.get_ref().as_str().filter(|text| !text.trim().is_empty());
        text.map_or_else(|| self.unexpected(value, field, "a text"), |text| Ok(text.to_string()))
    }

    /// Reads one text, or a list of texts.
    fn strings(&self, value: &Value<'_>, field: &str) -> Result<Vec<String>, ScenarioError> {
        match value.get_ref().as_array() {
            Some(list) => list.iter().map(|value| self.string(value, field)).collect(),
            None => Ok(vec![self.string(value, field)?]),
        }
    }

    fn boolean(&self, value: &Value<'_>, field: &str) -> Result<bool, ScenarioError> {
        value.get_ref().as_bool().map_or_else(|| self.unexpected(value, field, "true or false"), Ok)
    }

    fn number(&self, value: &Value<'_>, field: Field) -> Result<f64, ScenarioError> {
        let info = field.info();
        match number(value.get_ref()) {
            Some(number) if info.limit.admits(number) => Ok(number),
            Some(number) if number > VALUE_MAX => {
                self.unexpected(value, info.name, &format!("at most {VALUE_MAX:e}"))
            }
            Some(number) if number > 0.0 && number < VALUE_MIN && info.limit.excludes_zero() => {
                self.unexpected(value, info.name, &format!("at least {VALUE_MIN:e}"))
            }
            _ => self.unexpected(value, info.name, &field.expected()),
        }
    }

    fn scenario(&self, document: &Table<'_>) -> Result<Scenario, ScenarioError> {
        let (mut title, mut baseline, mut equal_ratio) = (None, None, None);
        let mut common = Sections::default();
        let mut columns: &[Value<'_>] = &[];
        for (key, value) in document {
            match key.get_ref().as_ref() {
                "title" => title = Some(self.string(value, "title")?),
                "baseline" => baseline = Some((self.string(value, "baseline")?, value.span().start)),
                "equal_ratio" => match number(value.get_ref()) {
                    Some(ratio) if Field::Ratio.info().limit.admits(ratio) => equal_ratio = Some(ratio),
                    _ => return self.unexpected(value, "equal_ratio", "a number, 1 or more"),
                },
                "common" => {
                    for (key, value) in self.table(value, "common")? {
                        self.section(key, value, "common", &mut common)?;
                    }
                }
                "column" => match value.get_ref().as_array() {
                    Some(array) => columns = array,
                    None => return self.unexpected(value, "column", "[[column]], with two brackets"),
                },
                other => return self.unknown(key.span().start, other, TOP_KEYS),
            }
        }
        if columns.is_empty() || columns.len() > COLUMNS_MAX {
            let at = columns.get(COLUMNS_MAX).map_or(self.text.len(), |column| column.span().start);
            let problem = format!("expected 1 to {COLUMNS_MAX} tables [[column]], found {}", columns.len());
            return Err(self.error(at, "column", problem));
        }
        let mut read: Vec<Column> = Vec::new();
        for value in columns {
            let (column, name_at) = self.column(value, &common)?;
            if read.iter().any(|other| other.name == column.name) {
                let problem = format!("expected a name of its own, found a second {:?}", column.name);
                return Err(self.error(name_at, "column.name", problem));
            }
            read.push(column);
        }
        let mut scenario = Scenario {
            file: self.file.to_string(),
            title: title.unwrap_or_else(|| "Total cost of ownership".to_string()),
            columns: read,
            baseline: 0,
            equal_ratio,
        };
        if let Some((name, at)) = baseline {
            scenario.baseline = scenario.columns.iter().position(|c| c.name == name).ok_or_else(|| {
                let names = scenario.column_names();
                self.error(at, "baseline", format!("expected the name of a column ({names}), found {name:?}"))
            })?;
        }
        Ok(scenario)
    }

    /// Reads one key of `common` or of a column: a section of fields, or `sources`.
    fn section(
        &self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Value<'_>,
        place: &str,
        into: &mut Sections,
    ) -> Result<(), ScenarioError> {
        let section = key.get_ref().as_ref();
        if section == "sources" {
            for (key, value) in self.table(value, &format!("{place}.sources"))? {
                let name = key.get_ref().as_ref();
                let Some(field) = Field::named(name) else {
                    let expected = "the full name of a field in quotes, such as \"workload.ratio\"";
                    return self.unknown(key.span().start, &format!("{place}.sources.{name}"), expected);
                };
                into.sources.insert(field, self.string(value, &format!("{place}.sources.{name}"))?);
            }
            return Ok(());
        }
        let mut fields = Field::ALL.iter().filter(|field| field.section() == section).peekable();
        if fields.peek().is_none() {
            let expected =
                if place == "common" { "[common.sources] and the sections of fields" } else { COLUMN_KEYS };
            return self.unknown(key.span().start, &format!("{place}.{section}"), &with_sections(expected));
        }
        for (key, value) in self.table(value, &format!("{place}.{section}"))? {
            let name = format!("{section}.{}", key.get_ref());
            let Some(field) = Field::named(&name) else {
                let keys: Vec<_> = fields.map(|field| field.key()).collect();
                let expected = Field::closest(section, key.get_ref()).map_or_else(
                    || format!("one of {}", keys.join(", ")),
                    |close| format!("perhaps {close}"),
                );
                return self.unknown(key.span().start, &name, &expected);
            };
            into.values.insert(field, (self.number(value, field)?, key.span().start));
        }
        Ok(())
    }

    /// Reads a column. Also returns the byte offset of its name.
    fn column(&self, value: &Value<'_>, common: &Sections) -> Result<(Column, usize), ScenarioError> {
        let start = value.span().start;
        let mut own = Sections::default();
        let (mut name, mut note, mut scan, mut bench) = (None, None, None, Vec::new());
        let (mut codec, mut codecs) = (None, BTreeMap::new());
        let (mut kind, mut compresses) = (Kind::Rack, true);
        for (key, value) in self.table(value, "column")? {
            match key.get_ref().as_ref() {
                "name" => name = Some((self.string(value, "column.name")?, key.span().start)),
                "note" => note = Some(self.string(value, "column.note")?),
                "scan" => scan = Some(self.string(value, "column.scan")?),
                "bench" => bench = self.strings(value, "column.bench")?,
                "codec" => codec = Some((self.string(value, "column.codec")?, key.span().start)),
                "codecs" => codecs = self.codecs(value)?,
                "compresses" => compresses = self.boolean(value, "column.compresses")?,
                "kind" => {
                    kind = match value.get_ref().as_str() {
                        Some("rack") => Kind::Rack,
                        Some("cloud") => Kind::Cloud,
                        _ => return self.unexpected(value, "column.kind", "\"rack\" or \"cloud\""),
                    }
                }
                _ => self.section(key, value, "column", &mut own)?,
            }
        }
        if let Some(figures) = self.chosen(&codec, &codecs, &own, start)? {
            own.values.extend(figures.values.iter().map(|(field, value)| (*field, (*value, start))));
            // A source that the column gives for one of them is more precise.
            for (field, source) in figures.values.keys().zip(std::iter::repeat(&figures.source)) {
                if let Some(source) = source {
                    own.sources.entry(*field).or_insert_with(|| source.clone());
                }
            }
        }
        let Some((name, name_at)) = name else {
            return Err(self.error(start, "column.name", "missing; expected a text".to_string()));
        };
        let mut column = Column {
            name,
            kind,
            note,
            compresses,
            codec: codec.map(|(codec, _)| codec),
            codecs,
            scan,
            bench,
            sources: common.sources.clone(),
            inputs: BTreeMap::new(),
        };
        self.fill(&mut column, &own, common, start)?;
        column.sources.extend(own.sources);
        Ok((column, name_at))
    }

    /// Reads `[column.codecs.NAME]`: the figures of codecs.
    fn codecs(&self, value: &Value<'_>) -> Result<BTreeMap<String, CodecFigures>, ScenarioError> {
        let mut codecs = BTreeMap::new();
        for (codec, value) in self.table(value, "column.codecs")? {
            let place = format!("column.codecs.{}", codec.get_ref());
            let mut figures = CodecFigures { values: BTreeMap::new(), source: None };
            for (key, value) in self.table(value, &place)? {
                let field = CODEC_FIELDS.into_iter().find(|field| field.key() == key.get_ref().as_ref());
                match field {
                    Some(field) => drop(figures.values.insert(field, self.number(value, field)?)),
                    None if key.get_ref() == "source" => {
                        figures.source = Some(self.string(value, &format!("{place}.source"))?);
                    }
                    None => {
                        let keys: Vec<&str> = CODEC_FIELDS.iter().map(|field| field.key()).collect();
                        let expected = format!("one of {}, source", keys.join(", "));
                        return self.unknown(
                            key.span().start,
                            &format!("{place}.{}", key.get_ref()),
                            &expected,
                        );
                    }
                }
            }
            // A ratio without what it takes, or the other way round, would be combined with the figures of
            // another codec.
            if let Some(missing) = CODEC_FIELDS.iter().find(|field| !figures.values.contains_key(field)) {
                let problem = format!("missing; expected {}", missing.expected());
                return Err(self.error(codec.span().start, &format!("{place}.{}", missing.key()), problem));
            }
            codecs.insert(codec.get_ref().to_string(), figures);
        }
        Ok(codecs)
    }

    /// Returns the figures of the codec that a column chooses; `None` if it lists none.
    fn chosen<'c>(
        &self,
        codec: &Option<(String, usize)>,
        codecs: &'c BTreeMap<String, CodecFigures>,
        own: &Sections,
        start: usize,
    ) -> Result<Option<&'c CodecFigures>, ScenarioError> {
        if codecs.is_empty() {
            return Ok(None);
        }
        let known = codecs.keys().map(|codec| format!("{codec:?}")).collect::<Vec<_>>().join(", ");
        let Some((codec, at)) = codec else {
            let problem = format!("missing; expected one of [column.codecs]: {known}");
            return Err(self.error(start, "column.codec", problem));
        };
        let Some(figures) = codecs.get(codec) else {
            let problem = format!("expected one of [column.codecs]: {known}, found {codec:?}");
            return Err(self.error(*at, "column.codec", problem));
        };
        match CODEC_FIELDS.iter().find_map(|field| Some((field, own.values.get(field)?))) {
            Some((field, (_, at))) => {
                let problem = format!("expected none, since [column.codecs.{codec}] has it");
                Err(self.error(*at, field.info().name, problem))
            }
            None => Ok(Some(figures)),
        }
    }

    /// Sets the inputs of a column: from the column itself, else from `common`, else from the defaults.
    fn fill(
        &self,
        column: &mut Column,
        own: &Sections,
        common: &Sections,
        start: usize,
    ) -> Result<(), ScenarioError> {
        for (field, (value, at)) in &own.values {
            if !column.takes(*field) {
                let name = field.info().name;
                let problem = if field.applies_to(column.kind) {
                    "expected none, since the column has compresses = false".to_string()
                } else {
                    format!("expected none in {:?}, a column of kind {}", column.name, column.kind.name())
                };
                return Err(self.error(*at, name, format!("{problem}; found {}", found(*value))));
            }
        }
        for field in Field::ALL.iter().copied().filter(|field| field.applies_to(column.kind)) {
            let given = |from: &Sections, origin| {
                from.values.get(&field).map(|(value, _)| Input { value: *value, origin })
            };
            let default = || field.info().default.map(|value| Input { value, origin: Origin::Default });
            let input = if column.takes(field) {
                given(own, Origin::Column).or_else(|| given(common, Origin::Common)).or_else(default)
            } else {
                Some(Input { value: 1.0, origin: Origin::Default })
            };
            match input {
                Some(input) => drop(column.inputs.insert(field, input)),
                None if field.is_required() => {
                    let problem =
                        format!("missing in column {:?}; expected {}", column.name, field.expected());
                    return Err(self.error(start, field.info().name, problem));
                }
                None => {}
            }
        }
        column.contradiction().map_or(Ok(()), |(field, expected)| {
            let at =
                own.values.get(&field).or_else(|| common.values.get(&field)).map_or(start, |(_, at)| *at);
            let problem = format!(
                "expected {expected} in column {:?}, found {}",
                column.name,
                found(column.get(field))
            );
            Err(self.error(at, field.info().name, problem))
        })
    }
}

/// Returns the value as a number, if it is one.
fn number(value: &DeValue<'_>) -> Option<f64> {
    let number = match value {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok()? as f64,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    Some(number)
}

/// Describes a value for a message. Numbers and texts of at most 40 characters are shown in full.
fn describe(value: &DeValue<'_>) -> String {
    match (value, number(value)) {
        (_, Some(number)) => found(number),
        (DeValue::String(text), _) if text.chars().count() <= 40 => format!("the text {text:?}"),
        (DeValue::String(_), _) => "a text".to_string(),
        (DeValue::Boolean(boolean), _) => boolean.to_string(),
        (DeValue::Array(_), _) => "an array".to_string(),
        (DeValue::Table(_), _) => "a table".to_string(),
        (DeValue::Datetime(_), _) => "a date or time".to_string(),
        _ => "a number too large".to_string(),
    }
}

/// Adds the section names to a description of what was expected.
fn with_sections(expected: &str) -> String {
    let mut sections: Vec<_> = Field::ALL.iter().map(|field| field.section()).collect();
    sections.dedup();
    format!("{expected} ({})", sections.join(", "))
}
