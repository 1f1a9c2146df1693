//! A table as people read it in a terminal: names to the left, numbers to the right, and no column
//! that is empty for every row.

/// Headings and cells, all as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// How many columns, from the first on, are names.
    pub(super) names: usize,
}

impl Table {
    /// Leaves out what is empty for every row. `names`: how many columns are names.
    pub(super) fn new(headings: &[&str], rows: Vec<Vec<String>>, names: usize) -> Self {
        let is_used = |index: &usize| rows.iter().any(|row| !row[*index].is_empty());
        let used: Vec<usize> = (0..headings.len()).filter(is_used).collect();
        let keep = |cells: &[String]| used.iter().map(|&index| cells[index].clone()).collect();
        Table {
            headings: used
                .iter()
                .map(|&index| headings[index].to_owned())
                .collect(),
            rows: rows.iter().map(|row| keep(row)).collect(),
            names: used.iter().filter(|index| **index < names).count(),
        }
    }

    /// A line for the headings and one for each row.
    pub(super) fn lines(&self) -> Vec<String> {
        let all = || std::iter::once(&self.headings).chain(&self.rows);
        let width = |index: usize| all().map(|row| row[index].chars().count()).max();
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|index| width(index).unwrap_or_default())
            .collect();
        let line = |cells: &Vec<String>| {
            let mut line = String::new();
            for (index, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                line.push_str(&match index < self.names {
                    true => format!("  {cell:<width$}"),
                    false => format!("  {cell:>width$}"),
                });
            }
            line.trim_end().to_owned()
        };
        all().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 3]]) -> Table {
        let rows = rows
            .iter()
            .map(|row| row.map(str::to_owned).to_vec())
            .collect();
        Table::new(&["peer", "waits", "op/s ±"], rows, 2)
    }

    #[test]
    fn names_stand_left_and_numbers_right() {
        let table = table(&[["redis", "pub/sub", "1,234"], ["etcd", "in line", "±5"]]);
        assert_eq!(
            table.lines(),
            [
                "  peer   waits    op/s ±",
                "  redis  pub/sub   1,234",
                "  etcd   in line      ±5",
            ]
        );
    }

    #[test]
    fn a_column_without_a_cell_is_left_out() {
        let table = table(&[["redis", "", "1"], ["etcd", "", "2"]]);
        assert_eq!(table.headings, ["peer", "op/s ±"]);
        assert_eq!(table.names, 1);
        assert_eq!(table.lines()[1], "  redis       1");
    }
}
