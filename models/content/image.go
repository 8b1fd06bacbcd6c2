package content

import (
	"likewise/models"
	"likewise/models/db"
	"likewise/models/media"
)

// EraseImagesOf erases the images that only erased texts of a target used. What is left of its texts is in its row and
// in its versions.
func EraseImagesOf(tx *db.Tx, target models.Target) error {
	table := RevisionTables[target.Kind]
	query := `
		SELECT content
		FROM ` + db.TargetTables[target.Kind].Targets + `
		WHERE id=?
		UNION ALL
		SELECT content
		FROM ` + table.Name + `
		WHERE ` + table.ID + `=?`
	var texts []string
	if err := tx.Raw(query, target.ID, target.ID).Scan(&texts).Error; err != nil {
		return err
	}
	return media.EraseImageUses(tx, media.TargetSubject(target), texts...)
}
